// bullmq.mjs redis|postgres IN-FLIGHT SECONDS URL [replay] - BullMQ's Queue.add with a deduplication id,
// as fast as one process makes jobs: each with a new id, or again with ids of jobs that wait. Prints one
// JSON object, as fleet load does.
//
// On Redis with ioredis' auto-pipelining; on PostgreSQL with a connection for each call in flight.
import { Queue, createPostgresBackend } from "bullmq";
import { closedLoop, measure, soFar } from "./loop.mjs";
import { key, ok, value } from "./mollifier.mjs";

const REPLAY_KEYS = 20000;
const [where, inFlight, seconds, url, work] = process.argv.slice(2);
const count = Number(inFlight);

function open() {
  if (where === "postgres") {
    const connection = { connectionString: url, max: count, migrate: true };
    return new Queue("bench", { connection }, createPostgresBackend);
  }
  const { hostname, port } = new URL(url);
  return new Queue("bench", { connection: { host: hostname, port: Number(port), enableAutoPipelining: true } });
}

const queue = open();
const add = (id) => queue.add("bench", { value }, { deduplication: { id } });

const ids = [];
async function first(n) {
  const job = await add(key(n).idempotencyKey);
  ok(job.id, "add a new job");
  if (work === "replay") ids[n] = job.id;
}
const again = async (n) => ok((await add(key(n % ids.length).idempotencyKey)).id === ids[n % ids.length], "find the job");

ok((await add("same")).id === (await add("same")).id, "have an id that is unique");
await closedLoop(count, first, () => soFar() < (work === "replay" ? REPLAY_KEYS : count)); // connected
const [before, already] = [soFar(), await queue.getWaitingCount()];
await measure(count, Number(seconds), work === "replay" ? again : first);
const made = (await queue.getWaitingCount()) - already;
ok(made === (work === "replay" ? 0 : soFar() - before), "make a job for each new id, and none for the others");
await queue.close();
