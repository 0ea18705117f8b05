// side.mjs BUILD PEERS [ONLY] [--json FILE] [--rounds N] [--seconds S] - side by side with libraries
// that people use today for the same purpose: @aws-lambda-powertools/idempotency, express-idempotency
// and BullMQ.
//
// BUILD is where bench/fleet and bench/triggers were built, with the command beside it; PEERS a copy of
// bench/peers with its packages installed. Starts a private redis-server and PostgreSQL, measures ours
// and the peer in turns (A B A B ...), and prints one table. What is compared with what, and what is not
// the same: docs/performance.md. ONLY is powertools, express or bullmq. Exit status 0 unless something is
// not as it should be: there are no targets here.
import { execFileSync, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Report } from "./report.mjs";
import { clean, killDaemons, startOnce, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "string" }, rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "1" } },
});
const [build, peers, only] = positionals;
const here = import.meta.dirname ?? dirname(new URL(import.meta.url).pathname);
const once = join(build, "../once");
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const inFlight = 256;
const connections = 50; // to PostgreSQL, one for each call in flight
const pipelined = { clients: 8, depth: 32 }; // inFlight of them, as a client with auto-pipelining has them
const report = new Report(options.json, Boolean(only));

const ok = (condition, what) => {
  if (!condition) throw new Error(`not so: ${what}`);
};

const text = (command, ...args) => {
  const errors = command === "redis-benchmark" ? "ignore" : "inherit"; // it warns of a server that has no CONFIG
  return execFileSync(command, args.map(String), { encoding: "utf8", timeout: 120000, stdio: ["ignore", "pipe", errors] });
};
const rateOf = (command, ...args) => JSON.parse(text(command, ...args)).rate;
const peer = (script, ...args) => () => rateOf("node", join(peers, script), ...args);

const emptied = () => {
  clean(servers, "claims", "runs");
  servers.psql("SET client_min_messages = warning; DROP SCHEMA IF EXISTS bullmq CASCADE");
};

// A B A B ...: one sample of each per round.
async function inTurns(ours, theirs) {
  const samples = { ours: [], peer: [] };
  for (let round = 0; round < rounds; round++) {
    emptied();
    samples.ours.push(await ours());
    emptied();
    samples.peer.push(await theirs());
  }
  return samples;
}

// ---- a wrapped function: answers in Redis ------------------------------------------------------

// A machine that is busy with something else may be slow; it may not end the measurement.
const coord = () => `${servers.redis}?timeout_ms=5000`;

async function powertools() {
  const ours = (work) => () => rateOf(join(build, "fleet"), "load", work, inFlight, seconds, coord(), "none");
  const package_ = "aws-lambda-powertools idempotency on Redis";
  report.add({
    name: "powertools_new", what: `redis: a call with a new id, ${inFlight} in flight`, unit: "/s",
    ...(await inTurns(ours("pairs"), peer("powertools.mjs", inFlight, seconds, servers.redis))),
    against: `${package_}: makeIdempotent, a function that returns at once`,
  });
  report.add({
    name: "powertools_replay", what: `redis: a call with a known id, ${inFlight} in flight`, unit: "/s",
    ...(await inTurns(ours("replay"), peer("powertools.mjs", inFlight, seconds, servers.redis, "replay"))),
    against: package_,
  });
}

// ---- HTTP: answers in memory -------------------------------------------------------------------

async function startExpress() {
  const env = { ...process.env, NODE_ENV: "production" };
  const child = spawn("node", [join(peers, "express.mjs")], { stdio: ["pipe", "pipe", "inherit"], env });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  return { http: Number(value), stop: () => (child.stdin.end(), exited) };
}

function wrk(port, script) {
  const said = text("wrk", "-t", 1, "-c", 64, "-d", `${Math.ceil(seconds)}s`, "--timeout", "20s", "-s", join(here, script), `http://127.0.0.1:${port}/`);
  ok(!/Non-2xx|Socket errors/.test(said), said);
  return Number(said.match(/Requests\/sec:\s+([\d.]+)/)[1]);
}

async function publishDone(d) {
  const cli = (...args) => text("redis-cli", "-p", d.resp, ...args);
  const token = cli("ONCE.CLAIM", "bench", "done").split("\n")[1];
  cli("ONCE.PUBLISH", "bench", "done", token, '{"answer":"static"}');
}

async function answerOnce({ http }) {
  const post = () => fetch(`http://127.0.0.1:${http}/`, { method: "POST", headers: { "Idempotency-Key": "done" } });
  const [first, second] = [await post(), await post()];
  ok((await first.text()) === (await second.text()) && second.headers.get("idempotency-key") === "done", "Express answers again");
}

async function express() {
  const [ours, theirs] = [await startOnce(once, "--ledger", "none"), await startExpress()];
  await publishDone(ours);
  await answerOnce(theirs);
  report.add({
    name: "express_replay", what: "HTTP: an answer again, 64 connections", unit: "/s",
    ...(await inTurns(() => wrk(ours.http, "replay.lua"), () => wrk(theirs.http, "express.lua"))),
    against: "express-idempotency on Express, in memory, same wrk",
  });
  await Promise.all([ours.stop(), theirs.stop()]);
}

// ---- triggers with a key -----------------------------------------------------------------------

async function at(starting, work) {
  const d = await starting;
  const result = await work(d);
  await d.stop();
  return result;
}

const fleet = (...args) => startOnce(once, "--ledger", servers.postgres, "--coord", coord(), ...args);
const alone = (...args) => startOnce(once, "--ledger", servers.postgres, "--coord", "none", ...args);
const triggers = (d, ...how) => rateOf(join(build, "triggers"), "load", d.resp, ...how);
const trigger = (d, ...more) => text("redis-cli", "-p", d.resp, "ONCE.TRIGGER", "bench", "{}", ...more);

// The first one passes the gate; from then on it is tripped. Nobody drains.
const buffered = () =>
  at(fleet("--gate-threshold", "1", "--gate-hold", "1h", "--drainer", "off"), (d) => {
    for (let i = 0; i < 2; i++) trigger(d);
    return triggers(d, pipelined.clients, pipelined.depth, seconds, "buffer");
  });

const durable = () => at(alone("--gate", "off"), (d) => triggers(d, inFlight, 1, seconds, "ledger"));

const runsTable = () => servers.psql("SELECT quote_ident(schemaname) || '.runs' FROM pg_tables WHERE tablename = 'runs' LIMIT 1").trim();
const known = 10000;

// redis-benchmark picks among so many keys; when most have been there, one pass is counted.
function passOfKnown(d, count) {
  const load = ["-P", pipelined.depth, "-c", pipelined.clients, "-n", count, "-r", known, "--csv"];
  const said = text("redis-benchmark", "-p", d.resp, ...load, "ONCE.TRIGGER", "bench", "{}", "KEY", "k:__rand_int__");
  return Number(said.trim().split("\n").at(-1).split('","')[1]);
}

const repeated = () =>
  at(fleet("--gate", "off"), (d) => {
    const rate = passOfKnown(d, 4 * known) && passOfKnown(d, Math.round(30000 * seconds));
    const made = Number(servers.psql(`SELECT count(*) FROM ${runsTable()}`));
    ok(made > 0.9 * known && made <= known, "one run for each key");
    ok(/cached/.test(trigger(d, "KEY", "k:000000000007")), "a known key is answered from what is there");
    return rate;
  });

async function bullmq() {
  const add = "BullMQ Queue.add with a deduplication id";
  report.add({
    name: "bullmq_buffer", what: `triggers with a key, into Redis, ${inFlight} in flight`, unit: "/s",
    ...(await inTurns(buffered, peer("bullmq.mjs", "redis", inFlight, seconds, servers.redis))),
    against: `${add}, on Redis, ${inFlight} in flight`,
  });
  report.add({
    name: "bullmq_durable", what: `durable triggers with a key, ${inFlight} clients`, unit: "/s",
    ...(await inTurns(durable, peer("bullmq.mjs", "postgres", connections, seconds, servers.postgres))),
    against: `${add}, on PostgreSQL, ${connections} in flight`,
  });
  report.add({
    name: "bullmq_known", what: `triggers with a known key, ${inFlight} in flight`, unit: "/s",
    ...(await inTurns(repeated, peer("bullmq.mjs", "redis", inFlight, seconds, servers.redis, "replay"))),
    against: `${add}, on Redis, ${inFlight} in flight`,
  });
}

const groups = { powertools, express, bullmq };

const servers = startServers();
try {
  for (const [name, group] of Object.entries(groups)) if (!only || only === name) await group();
} finally {
  killDaemons();
  servers.stop();
}
process.exitCode = report.end();
