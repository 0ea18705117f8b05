// jobs.mjs pg-boss|graphile-worker IN-FLIGHT SECONDS POSTGRES-URL - a new job with a key of its own, as
// fast as one process makes them. Prints one JSON object, as fleet load does.
//
// pg-boss: a queue with the policy "short", in which a singletonKey is unique among jobs that wait; in
// a standard queue it is not. Nothing of theirs runs beside it: no maintenance, no workers.
import { closedLoop, measure, soFar } from "./loop.mjs";
import { key, ok, value } from "./mollifier.mjs";

const [peer, inFlight, seconds, url] = process.argv.slice(2);
const connections = Number(inFlight); // as many as are in flight: none waits for one

async function pgBoss() {
  const { default: PgBoss } = await import("pg-boss");
  const boss = new PgBoss({ connectionString: url, max: connections, supervise: false, schedule: false });
  boss.on("error", (error) => {
    throw error;
  });
  await boss.start();
  await boss.createQueue("bench", { policy: "short" });
  const send = (singletonKey) => boss.send("bench", { value }, { singletonKey });
  ok((await send("same")) && (await send("same")) === null, "have a key that is unique");
  return {
    one: async (n) => ok(await send(key(n).idempotencyKey), "send a new job"),
    close: () => boss.stop({ graceful: false, wait: true }),
  };
}

async function graphileWorker() {
  const { makeWorkerUtils } = await import("graphile-worker");
  const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: connections });
  await utils.migrate();
  const add = (jobKey) => utils.addJob("bench", { value }, { jobKey });
  ok((await add("same")).id === (await add("same")).id, "have a key that is unique");
  return {
    one: async (n) => ok((await add(key(n).idempotencyKey)).revision === 0, "add a new job"),
    close: () => utils.release(),
  };
}

const { one, close } = await (peer === "pg-boss" ? pgBoss() : graphileWorker());
await closedLoop(connections, one, () => soFar() < connections); // connected
await measure(connections, Number(seconds), one);
await close();
