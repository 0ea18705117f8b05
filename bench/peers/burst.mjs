// burst.mjs owner|losers [COUNT] REDIS-URL - the same-key burst of bench/fleet/burst.c, line by line
// the same, with @trigger.dev/redis-worker: a loser claims, is told that it is pending, and reads
// the claim every 25 ms for up to 5 s, as that package's own service does.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { buffer, named, ok, value } from "./mollifier.mjs";

const POLL_MS = 25;
const WAIT_MS = 5000;
const PARKED_MS = 100;
const role = process.argv[2];
const count = Number(process.argv[3]);
const redis = buffer(process.argv.at(-1));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const hear = async () => (await lines.next()).value;
const nowNs = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as in C

async function owner() {
  for (let line; (line = await hear()); ) {
    const key = named(line.slice("claim ".length));
    const token = randomUUID();
    const claim = await redis.claimIdempotency({ ...key, token, ttlSeconds: 30 });
    ok(claim.kind === "claimed", "claim a new key");
    console.log("claimed");
    await hear();
    const at = nowNs();
    ok(await redis.publishClaim({ ...key, token, runId: value, ttlSeconds: 30 }), "publish");
    console.log(`published ${at}`);
  }
}

const claimed = ({ key, token }) => redis.claimIdempotency({ ...key, token, ttlSeconds: 30 });

// Where there is no claim any more, it claims again, with the same token. Here its owner publishes
// in time, so whoever is told anything but the answer is a measurement that went wrong.
async function answered(caller) {
  for (const end = performance.now() + WAIT_MS; performance.now() < end; ) {
    await sleep(POLL_MS);
    const claim = (await redis.readClaim(caller.key)) ?? (await claimed(caller));
    ok(claim.kind !== "claimed", "lose, and lose again");
    if (claim.kind === "resolved") return nowNs();
  }
  return ok(false, "be answered in time");
}

async function losers() {
  for (let line; (line = await hear()); ) {
    const key = named(line.slice("wait ".length));
    const callers = Array.from({ length: count }, () => ({ key, token: randomUUID() }));
    for (const claim of await Promise.all(callers.map(claimed))) ok(claim.kind === "pending", "lose");
    const woken = Promise.all(callers.map(answered));
    await sleep(PARKED_MS);
    console.log("waiting");
    console.log(`woken ${(await woken).join(" ")}`);
  }
}

await redis.readClaim(named("nothing")); // connected
console.log("ready");
await (role === "owner" ? owner() : losers());
await redis.close();
