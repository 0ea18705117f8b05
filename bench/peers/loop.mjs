// loop.mjs - a closed loop: so many calls in flight, each followed by the next.

let next = 0;

// Calls `one` with the next numbers, inFlight at a time, until `goOn` says no; returns how many.
export async function closedLoop(inFlight, one, goOn) {
  const first = next;
  const client = async () => {
    while (goOn()) await one(next++);
  };
  await Promise.all(Array.from({ length: inFlight }, client));
  return next - first;
}

export const soFar = () => next;

export const during = (ms) => {
  const end = performance.now() + ms;
  return () => performance.now() < end;
};

// What `fleet load` prints: after a second for the compiler, `seconds` of it.
export async function measure(inFlight, seconds, one) {
  await closedLoop(inFlight, one, during(1000));
  const cpu = process.cpuUsage();
  const start = performance.now();
  const done = await closedLoop(inFlight, one, during(seconds * 1000));
  const rate = (done / (performance.now() - start)) * 1000;
  const { user, system } = process.cpuUsage(cpu);
  console.log(JSON.stringify({ rate, client_us: (user + system) / done }));
}
