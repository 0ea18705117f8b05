// buffer.mjs accept IN-FLIGHT SECONDS REDIS-URL - MollifierBuffer.accept of @trigger.dev/redis-worker,
// each with a key of its own, auto-pipelining on.
// buffer.mjs drain CONCURRENCY COUNT REDIS-URL - its MollifierDrainer moves so many entries of one env
// to nowhere: its handler does nothing. The first quarter is for the compiler. Both print one JSON
// object with a rate.
import { MollifierDrainer } from "@trigger.dev/redis-worker";
import { closedLoop, measure, soFar } from "./loop.mjs";
import { buffer, key, ok, value } from "./mollifier.mjs";

const [what, inFlight, amount, url] = process.argv.slice(2);
const ACCEPTS_AT_ONCE = 256;
const payload = JSON.stringify({ value });
const redis = buffer(url);
const quiet = { log() {}, error: console.error, warn: console.error, info() {}, debug() {}, verbose() {} };

async function accept(n) {
  const name = key(n);
  const result = await redis.accept({ runId: `run_${name.idempotencyKey}`, orgId: "bench", payload, ...name });
  ok(result.kind === "accepted", "accept a new key");
}

async function drain(count) {
  await closedLoop(ACCEPTS_AT_ONCE, accept, () => soFar() < count);
  const accepted = soFar();
  let handled = 0;
  const drainer = new MollifierDrainer({
    buffer: redis,
    handler: async () => void handled++,
    concurrency: Number(inFlight),
    drainBatchSize: 10 * Number(inFlight),
    maxAttempts: 3,
    isRetryable: () => false,
    logger: quiet,
  });
  const until = async (drained, most) => {
    while (drained < most) drained += (await drainer.runOnce()).drained;
    return drained;
  };
  const warm = await until(0, accepted / 4);
  const start = performance.now();
  await until(warm, accepted);
  const took = performance.now() - start;
  ok(handled === accepted, "hand over each entry once");
  console.log(JSON.stringify({ rate: ((accepted - warm) / took) * 1000 }));
}

if (what === "accept") await measure(Number(inFlight), Number(amount), accept);
else await drain(Number(amount));
await redis.close();
