// ioredis.mjs PORT FIFO - the daemon through ioredis: commands, buffers, pipelines, waiting, errors, and
// a daemon that is killed and comes back (whoever reads the fifo does that). Prints a line for each
// thing that it saw; clients.sh compares them.
import { writeFileSync } from "node:fs";
import Redis from "ioredis";

const [port, fifo] = process.argv.slice(2);
const dial = () => new Redis({ port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => 20 });
const say = (...words) => console.log(...words);
const redis = dial();
const other = dial();
redis.on("error", () => {});
other.on("error", () => {});

const [outcome, token] = await redis.call("ONCE.CLAIM", "ioredis", "k");
say("claim:", outcome, "a token of", token.length);

const waits = other.callBuffer("ONCE.CLAIM", "ioredis", "k", "WAIT", "30s");
say("meanwhile:", await redis.call("ONCE.CLAIM", "ioredis", "k", "WAIT", 0).then(([word]) => word));
const value = Buffer.from([0, 13, 10, 255]);
say("publish:", await redis.call("ONCE.PUBLISH", "ioredis", "k", token, value));
const [cached, bytes] = await waits;
say("who waited:", cached.toString(), bytes.equals(value) ? "byte for byte" : "another value");

say("another fingerprint:", await redis.call("ONCE.CLAIM", "ioredis", "k", "FP", "x").catch((e) => e.message.split(" ")[0]));

const pipeline = redis.pipeline();
for (let i = 0; i < 500; i++) pipeline.call("ONCE.CLAIM", "many", `i${i}`, "WAIT", 0).echo(i);
const answers = await pipeline.exec();
const right = answers.filter(([error, answer], i) => !error && (i % 2 ? answer === String((i - 1) / 2) : answer[0] === "claimed"));
say("pipeline:", right.length, "of", answers.length, "as asked");

const meta = await redis.call("ONCE.PEEK", "ioredis", "k", "META");
say("META:", meta[0], meta[1], "durable", meta[meta.indexOf("durable") + 1]);

const [made, id, status, source] = await redis.call("ONCE.TRIGGER", "ioredis", JSON.stringify({ n: 1 }), "KEY", "k");
say("trigger:", made, id.length, status, source);
say("trigger again:", ...(await other.call("ONCE.TRIGGER", "ioredis", JSON.stringify({ n: 1 }), "KEY", "k").then((a) => [a[0], a[1] === id])));
const [[leased, lease, , payload]] = await redis.call("ONCE.PULL", "ioredis", "COUNT", 10);
say("pull:", leased === id, JSON.parse(payload).n);
say("ack:", await redis.call("ONCE.ACK", id, lease, JSON.stringify({ done: true })));
const run = await redis.call("ONCE.RUN", "GET", id);
say("run:", run[run.indexOf("status") + 1], JSON.parse(run[run.indexOf("output") + 1]).done);
const pulls = other.call("ONCE.PULL", "later", "WAIT", "30s");
await redis.call("ONCE.TRIGGER", "later", "1");
say("who waited for work:", (await pulls).length);

const mine = "00112233445566778899aabbccddeeff";
await redis.call("ONCE.CLAIM", "ioredis", "killed", "TOKEN", mine);
const gone = new Promise((resolve) => redis.once("close", resolve));
writeFileSync(fifo, "kill\n");
await gone;
say("after a restart:", await redis.call("ONCE.CLAIM", "ioredis", "killed", "TOKEN", mine).then(([word]) => word));
say("and its answers:", await redis.call("ONCE.PEEK", "ioredis", "k").then(([word]) => word));
redis.disconnect();
other.disconnect();
