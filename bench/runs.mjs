// runs.mjs ONCE TRIGGERS PEERS [ONLY] [--json FILE] [--rounds N] [--seconds S] [--entries N] [--storm S] -
// triggers through the daemon, beside what people use today.
//
// ONCE is the command, TRIGGERS bench/triggers as they were built, PEERS a copy of bench/peers with its
// packages installed. Starts a private redis-server and PostgreSQL, measures ours and the peers in turns
// (A B C A B C ...), and prints one table. ONLY is triggers, accepts, drainer, samekey or storm. Exit
// status 0 unless a target is missed by more than a factor of two.
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Report, median } from "./report.mjs";
import { clean, killDaemons, startOnce, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "1.5" },
    entries: { type: "string", default: "100000" },
    storm: { type: "string", default: "30" },
  },
});
const [once, triggers, peers, only] = positionals;
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const clients = 256;
const pipelined = { clients: 8, depth: 32 }; // as many in flight, the way a client with auto-pipelining has them
const report = new Report(options.json, Boolean(only));

const ok = (condition, what) => {
  if (!condition) throw new Error(`not so: ${what}`);
};

// ---- ours --------------------------------------------------------------------------------------

// A machine that is busy with something else may be slow; it may not end the measurement.
const coord = () => `${servers.redis}?timeout_ms=5000`;
const daemon = (...args) => startOnce(once, "--ledger", servers.postgres, "--coord", coord(), ...args);
const alone = (...args) => startOnce(once, "--ledger", servers.postgres, "--coord", "none", ...args);
const diverts = ["--gate-threshold", "1", "--gate-hold", "1h", "--drainer", "off"];

const run = (command, ...args) =>
  JSON.parse(execFileSync(command, args.map(String), { encoding: "utf8", timeout: 600000 }));

async function at(starting, work) {
  const d = await starting;
  const result = await work(d);
  await d.stop();
  return result;
}

const load = (starting) => () => at(starting("--gate", "off"), (d) => run(triggers, "load", d.resp, clients, 1, seconds, "ledger"));

// The first one passes the gate; from then on it is tripped.
const trip = (d) => execFileSync("redis-cli", ["-p", `${d.resp}`, "ONCE.TRIGGER", "bench", "{}"]) &&
  execFileSync("redis-cli", ["-p", `${d.resp}`, "ONCE.TRIGGER", "bench", "{}"]);

const accept = () =>
  at(daemon(...diverts), (d) => {
    trip(d);
    return run(triggers, "load", d.resp, pipelined.clients, pipelined.depth, seconds, "buffer");
  });

async function metric(d, name) {
  const text = await (await fetch(`http://127.0.0.1:${d.http}/metrics`)).text();
  return Number(text.match(new RegExp(`^${name} (\\S+)$`, "m"))[1]);
}

const runsTable = () => servers.psql("SELECT quote_ident(schemaname) || '.runs' FROM pg_tables WHERE tablename = 'runs' LIMIT 1").trim();
const rows = () => Number(servers.psql(`SELECT count(*) FROM ${runsTable()}`));

async function until(d, name, value) {
  while ((await metric(d, name)) < value) await sleep(25); // who asks takes time from who works
}

// From when the daemon is there until the last entry has been written.
const drain = (count) => async () => {
  await at(daemon(...diverts), (d) => (trip(d), run(triggers, "fill", d.resp, pipelined.clients, pipelined.depth, count)));
  const before = rows();
  const d = await daemon("--gate", "off");
  const start = performance.now();
  await until(d, "once_drained_total", count + 1);
  const rate = ((count + 1) / (performance.now() - start)) * 1000;
  await d.stop();
  ok(rows() === before + count + 1, "every entry is a row");
  return { rate };
};

// ---- peers -------------------------------------------------------------------------------------

const jobs = (peer) => () => run("node", join(peers, "jobs.mjs"), peer, 50, seconds, servers.postgres);
const mollifier = (what, inFlight, amount) => () => run("node", join(peers, "buffer.mjs"), what, inFlight, amount, servers.redis);

// ---- rows --------------------------------------------------------------------------------------

const emptied = () => {
  clean(servers, "claims", "runs");
  servers.psql("SET client_min_messages = warning; DROP SCHEMA IF EXISTS pgboss CASCADE; DROP SCHEMA IF EXISTS graphile_worker CASCADE");
};

// A B C A B C ...: { name: samples }.
async function inTurns(sides) {
  const samples = Object.fromEntries(Object.keys(sides).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, sample] of Object.entries(sides)) {
      emptied();
      samples[name].push(await sample());
    }
  }
  return samples;
}

const rates = (samples) => samples.map((sample) => sample.rate);
const latency = (samples) => ({ p50_ms: median(samples.map((s) => s.p50_ms)), p99_ms: median(samples.map((s) => s.p99_ms)) });

async function triggerRows() {
  const s = await inTurns({
    alone: load(alone),
    boss: jobs("pg-boss"),
    graphile: jobs("graphile-worker"),
    fleet: load(daemon),
  });
  const binds = "what a transaction costs PostgreSQL";
  const row = { what: `durable triggers with a key, ${clients} clients`, unit: "/s", ours: rates(s.alone), notes: latency(s.alone) };
  report.add({ ...row, name: "trigger_boss", peer: rates(s.boss), against: "pg-boss send with a singletonKey, 50 in flight", target: { ratio: 10 }, binds });
  report.add({ ...row, name: "trigger_graphile", peer: rates(s.graphile), against: "graphile-worker addJob with a jobKey, 50 in flight", target: { ratio: 18 }, binds });
  report.add({ ...row, name: "trigger_fleet", what: "the same, Redis in front of PostgreSQL", ours: rates(s.fleet), notes: latency(s.fleet) });
}

async function acceptRows() {
  const s = await inTurns({ ours: accept, peer: mollifier("accept", clients, seconds) });
  report.add({
    name: "accept", what: `triggers into the buffer, ${clients} in flight`, unit: "/s", ours: rates(s.ours), peer: rates(s.peer),
    against: `trigger.dev redis-worker: MollifierBuffer.accept, ${clients} in flight`, target: { ratio: 2 }, notes: latency(s.ours),
    binds: "the one thread of redis-server, behind a look into PostgreSQL,",
  });
}

async function drainerRows() {
  const s = await inTurns({ ours: drain(Number(options.entries)), peer: mollifier("drain", 50, Number(options.entries) * 0.4) });
  report.add({
    name: "drainer", what: "drainer: buffer to PostgreSQL", unit: "/s", ours: rates(s.ours), peer: rates(s.peer),
    against: "trigger.dev redis-worker: MollifierDrainer, 50 at once, to nowhere", target: { ratio: 5 },
    binds: "writing rows that are there to stay",
  });
}

// ---- one key -----------------------------------------------------------------------------------

const callers = 1000;
const bursts = 10;

async function sameKeyRows() {
  const all = [];
  for (let round = 0; round < rounds; round++) {
    emptied();
    const daemons = [await daemon(), await daemon()];
    const text = execFileSync(triggers, ["burst", callers, 2 + bursts, ...daemons.map((d) => d.resp)].map(String), { encoding: "utf8" });
    for (const d of daemons) await d.stop();
    ok(rows() === 2 + bursts, "one run for each key");
    all.push(...text.trim().split("\n").slice(2).map((line) => JSON.parse(line))); // the first ones connect
  }
  const what = `${callers} triggers of one key, 2 daemons`;
  const notes = { winner_ms: median(all.map((b) => b.winner_ms)), all_p50_ms: median(all.map((b) => b.all_p50_ms)) };
  report.add({ name: "samekey", what: `${what}: losers after winner`, unit: "ms", ours: all.map((b) => b.after_p50_ms), target: { atMost: 10 }, notes, binds: "writing 1,000 answers to 1,000 connections on shared processors" });
  report.add({ name: "samekey_p99", what: `${what}: p99`, unit: "ms", ours: all.map((b) => b.after_p99_ms) });
}

// ---- a storm -----------------------------------------------------------------------------------

const storm = { rate: 20000, seconds: Number(options.storm), clients: 8, drainRate: 20000 };

// Each row takes a millisecond more, so that both connections together take fewer than 2,000 a second;
// and how many come when is written down.
const slowly = (table) => `
CREATE TABLE IF NOT EXISTS public.bench_seen (at timestamptz NOT NULL, n bigint NOT NULL);
TRUNCATE public.bench_seen;
CREATE OR REPLACE FUNCTION public.bench_sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION public.bench_see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.bench_seen SELECT clock_timestamp(), count(*) FROM new_rows; RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER bench_sleep BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION public.bench_sleep();
CREATE OR REPLACE TRIGGER bench_see AFTER INSERT ON ${table} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.bench_see();`;

const quickly = (table) => `DROP TRIGGER bench_sleep ON ${table}`;

// The most rows that any second has seen, wherever it begins.
const mostASecond = `
SELECT coalesce(max(n), 0) FROM (
  SELECT sum(n) OVER (ORDER BY at RANGE BETWEEN '999999 us'::interval PRECEDING AND CURRENT ROW) AS n FROM public.bench_seen) AS s`;

// Of the ids that were handed out, how many are not in the ledger.
function lost(file) {
  const script = `CREATE TEMP TABLE told (id text);
\\copy told FROM '${file}'
SELECT count(*) FROM told t WHERE NOT EXISTS (SELECT FROM ${runsTable()} r WHERE r.env = 'default' AND r.id = t.id::bytea)`;
  const psql = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", servers.postgres];
  return Number(execFileSync("psql", psql, { encoding: "utf8", input: script }));
}

async function lines(command, args) {
  const child = spawn(command, args.map(String), { stdio: ["ignore", "pipe", "inherit"] });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const text = [];
  for await (const line of createInterface({ input: child.stdout })) text.push(line);
  ok((await exited) === 0, `${command} ends well`);
  return text;
}

async function stormRows() {
  emptied();
  await at(daemon("--drainer", "off"), () => {}); // makes the schema
  servers.psql(slowly(runsTable()));
  const ids = join(servers.dir, "ids");
  const d = await daemon("--drainer-rate", `${storm.drainRate}`);
  const [line] = await lines(triggers, ["storm", d.resp, storm.clients, storm.rate, storm.seconds, ids]);
  const told = JSON.parse(line);
  const atEnd = rows();
  servers.psql(quickly(runsTable()));
  const start = performance.now();
  await until(d, "once_drained_total", told.buffered);
  const took = (performance.now() - start) / 1000;
  const most = Number(servers.psql(mostASecond));
  await d.stop();
  const missing = lost(ids);
  servers.psql(`DROP TRIGGER bench_see ON ${runsTable()}`);
  const what = `storm: ${storm.rate.toLocaleString("en-US")} triggers/s for ${storm.seconds} s`;
  const notes = { ...told, rows_when_it_ended: atEnd, backlog_drained_in_s: took };
  report.add({ name: "storm_p99", what: `${what}, p99`, unit: "ms", ours: [told.p99_ms], target: { atMost: 50 }, notes, binds: "what two processors do for the load, the daemon and both servers" });
  report.add({ name: "storm_p50", what: "storm: median", unit: "ms", ours: [told.p50_ms] });
  report.add({ name: "storm_written", what: "storm: written by the slow ledger meanwhile", unit: "rows", ours: [atEnd] });
  report.add({ name: "storm_most", what: "storm: most rows in any second", unit: "rows", ours: [most], target: { atMost: storm.drainRate } });
  report.add({ name: "storm_backlog", what: "storm: backlog gone after", unit: "s", ours: [took] });
  report.add({ name: "storm_lost", what: "storm: ids that lead nowhere", unit: "", ours: [missing], target: { atMost: 0 } });
}

const groups = { triggers: triggerRows, accepts: acceptRows, drainer: drainerRows, samekey: sameKeyRows, storm: stormRows };

const servers = startServers();
try {
  for (const [name, group] of Object.entries(groups)) if (!only || only === name) await group();
} finally {
  killDaemons();
  servers.stop();
}
process.exitCode = report.end();
