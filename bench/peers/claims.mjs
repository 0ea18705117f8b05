// claims.mjs IN-FLIGHT SECONDS REDIS-URL [replay] - claim + publish of @trigger.dev/redis-worker
// as fast as one process does them, auto-pipelining on. Prints one JSON object, as fleet load does.
import { randomUUID } from "node:crypto";
import { closedLoop, measure, soFar } from "./loop.mjs";
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

if (replay) await closedLoop(inFlight, pair, () => soFar() < REPLAY_KEYS);
await measure(inFlight, seconds, replay ? again : pair);
await redis.close();
