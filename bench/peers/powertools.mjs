// powertools.mjs IN-FLIGHT SECONDS REDIS-URL [replay] - a function that is wrapped by
// @aws-lambda-powertools/idempotency, its records in Redis, called as fast as one process does: with a
// new id each time, or again with ids that were answered. Prints one JSON object, as fleet load does.
//
// The function itself returns at once. The client sends what is asked for in one turn of the loop
// together; the key is the id alone; how much time is left is known, as it is inside a Lambda.
import { IdempotencyConfig, makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";
import { createClient } from "@redis/client";
import { closedLoop, measure, soFar } from "./loop.mjs";
import { key, ok, value } from "./mollifier.mjs";

const REPLAY_KEYS = 20000;
const [inFlight, seconds] = process.argv.slice(2, 4).map(Number);
const client = await createClient({ url: process.argv[4] }).connect();
const replay = process.argv[5] === "replay";

const config = new IdempotencyConfig({ eventKeyJmesPath: "id" });
config.registerLambdaContext({ getRemainingTimeInMillis: () => 30000 });

let worked = 0;
const work = async () => {
  worked++;
  return value;
};
const wrapped = makeIdempotent(work, { persistenceStore: new CachePersistenceLayer({ client }), config });
const call = async (n) => ok((await wrapped({ id: key(n).idempotencyKey })) === value, "get the answer");

if (replay) await closedLoop(inFlight, call, () => soFar() < REPLAY_KEYS);
const before = [worked, soFar()];
await measure(inFlight, seconds, replay ? (n) => call(n % before[1]) : call);
ok(worked - before[0] === (replay ? 0 : soFar() - before[1]), "do what is new once, and what is known never");
await client.close();
