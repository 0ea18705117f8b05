// claims.mjs IN-FLIGHT SECONDS REDIS-URL [replay] - claim + publish of @trigger.dev/redis-worker
// as fast as one process does them, auto-pipelining on. Prints one JSON object, as fleet load does.
import { randomUUID } from "node:crypto";
import { buffer, key, ok, value } from "./mollifier.mjs";

const REPLAY_KEYS = 20000;
const [inFlight, seconds] = process.argv.slice(2, 4).map(Number);
const redis = buffer(process.argv[4]);
const replay = process.argv[5] === "replay";

async function pair(n) {
  const token = randomUUID();
  const name = key(n);
  const claim = await redis.claimIdempotency({ ...name, token, ttlSeconds: 30 });
  ok(claim.kind === "claimed", "claim a new key");
  ok(await redis.publishClaim({ ...name, token, runId: value, ttlSeconds: 30 }), "publish");
}

async function again(n) {
  const claim = await redis.claimIdempotency({ ...key(n % REPLAY_KEYS), token: randomUUID(), ttlSeconds: 30 });
  ok(claim.kind === "resolved" && claim.runId === value, "get the answer again");
}

let next = 0;

// Calls `one` with the next numbers, inFlight at a time, until `goOn` says no; returns how many.
async function closedLoop(one, goOn) {
  const first = next;
  const client = async () => {
    while (goOn()) await one(next++);
  };
  await Promise.all(Array.from({ length: inFlight }, client));
  return next - first;
}

const during = (ms) => {
  const end = performance.now() + ms;
  return () => performance.now() < end;
};

if (replay) await closedLoop(pair, () => next < REPLAY_KEYS);
await closedLoop(replay ? again : pair, during(1000)); // the compiler has seen everything
const cpu = process.cpuUsage();
const start = performance.now();
const done = await closedLoop(replay ? again : pair, during(seconds * 1000));
const rate = (done / (performance.now() - start)) * 1000;
const { user, system } = process.cpuUsage(cpu);
console.log(JSON.stringify({ rate, client_us: (user + system) / done }));
await redis.close();
