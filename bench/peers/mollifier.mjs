// mollifier.mjs - opens the published package, and names keys and values as bench/clients.c does.
import { MollifierBuffer } from "@trigger.dev/redis-worker";

export const value = "thirty-two bytes of canonical an";

export function buffer(url) {
  const { hostname, port } = new URL(url);
  const redisOptions = { host: hostname, port: Number(port), enableAutoPipelining: true };
  return new MollifierBuffer({ redisOptions });
}

const walk = 0x9e3779b97f4a7c15n;
const first = BigInt(Date.now()) * 1000000n;

// "order-" and 16 hex digits, spread over the index.
export function key(n) {
  const spread = BigInt.asUintN(64, (first + BigInt(n)) * walk);
  return named(`order-${spread.toString(16).padStart(16, "0")}`);
}

export function named(idempotencyKey) {
  return { envId: "bench", taskIdentifier: "bench", idempotencyKey };
}

export function ok(condition, what) {
  if (!condition) throw new Error(`cannot ${what}`);
}
