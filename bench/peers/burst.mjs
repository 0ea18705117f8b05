// burst.mjs owner|losers [COUNT] REDIS-URL - the same-key burst of bench/fleet/burst.c, line by line
// the same, with @trigger.dev/redis-worker: a loser claims, is told that it is pending, and reads
// the claim every 25 ms, as that package's own service does.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { buffer, named, ok, value } from "./mollifier.mjs";

const POLL_MS = 25;
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

async function loser(key) {
  for (;;) {
    await sleep(POLL_MS);
    const claim = await redis.readClaim(key);
    ok(claim, "find the claim");
    if (claim.kind === "resolved") return nowNs();
  }
}

async function losers() {
  for (let line; (line = await hear()); ) {
    const key = named(line.slice("wait ".length));
    const claimed = Array.from({ length: count }, () =>
      redis.claimIdempotency({ ...key, token: randomUUID(), ttlSeconds: 30 }),
    );
    for (const claim of await Promise.all(claimed)) ok(claim.kind === "pending", "lose");
    const woken = Promise.all(Array.from({ length: count }, () => loser(key)));
    await sleep(PARKED_MS);
    console.log("waiting");
    console.log(`woken ${(await woken).join(" ")}`);
  }
}

await redis.readClaim(named("nothing")); // connected
console.log("ready");
await (role === "owner" ? owner() : losers());
await redis.close();
