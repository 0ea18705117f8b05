// mutations.mjs ONCE DIR [ONLY] [--json FILE] [--rounds N] [--seconds N] - what markers cost.
//
// ONCE is the command, DIR has the programs of bench/mutations as they were built. Starts a private
// PostgreSQL that flushes every commit, and measures
//   marked    the same transaction with a marker as its first statement and without, in turns, by pgbench
//   mutate    the same with once_mutate() and with libpq alone, in turns, by a program of ours
//   batches   markers in batches at a rate, for a minute (--seconds), while a daemon sweeps those that
//             have expired: does it keep up?
// Exit status 0 unless a target is missed by more than a factor of two.
import { execFileSync, spawn } from "node:child_process";
import { once as event } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Report, median } from "./report.mjs";
import { killDaemons, pgbenchScript, serverCpuUs, startOnce, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "string" }, rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "60" } },
});
const [once, programs, only] = positionals;
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const here = import.meta.dirname;
const report = new Report(options.json, Boolean(only));

const ok = (condition, what) => {
  if (!condition) throw new Error(`not so: ${what}`);
};

const number = (sql) => Number(servers.psql(sql));
const install = (ttl) => execFileSync(once, ["--ledger", servers.postgres, "migrate", "--mutations", "--ttl", ttl]);

// ---- one marker, one transaction ------------------------------------------------------------------

const crowds = [4, 16]; // clients: two for each processor; many more than processors
const roundSeconds = 4; // a new session takes milliseconds to get to know the functions: the longer, the less of it

function items() {
  install("1h");
  servers.psql(`SET client_min_messages = warning; DROP TABLE IF EXISTS bench_items;
    CREATE TABLE bench_items (id integer PRIMARY KEY, version integer NOT NULL) WITH (fillfactor = 50);
    INSERT INTO bench_items SELECT i, 1 FROM generate_series(1, 100000) AS i`);
  servers.psql("VACUUM ANALYZE bench_items");
}

// Rounds of all in turns; who goes first changes: what the machine does meanwhile hits all. A sample is
// () => rate; the first is what the others are compared with.
function inTurns(samples) {
  const rates = samples.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const i of samples.keys()) {
      const turn = (i + round) % samples.length;
      rates[turn].push(samples[turn]());
    }
  }
  return rates;
}

function addRows(kinds, clients, rates, against, target) {
  Object.entries(kinds).forEach(([name, [what, binds]], i) => report.add({
    name: `${name}_${clients}`, what: `UPDATE of one row ${what}, ${clients} clients`, unit: "/s", ours: rates[i + 1], peer: rates[0], against, target, binds,
  }));
}

// The marker as a statement of its own, and in one message with BEGIN.
const marked = {
  marked: ["behind a marker", "a round trip more, and a row with two indexes,"],
  together: ["behind a marker that is sent with BEGIN", "a row with two indexes"],
};

function markedRows() {
  items();
  for (const clients of crowds) {
    const names = ["plain", ...Object.keys(marked)];
    const sides = names.map((name) => pgbenchScript(servers, join(here, "mutations", `${name}.sql`), clients, roundSeconds));
    const rates = inTurns(sides.map((side) => () => side().rate));
    addRows(marked, clients, rates, "the same transaction without the marker", { ratio: 0.65 });
  }
  ok(number("SELECT count(*) FROM once_mutations") > 0, "markers are there");
}

const mutated = {
  mutate: ["by once_mutate()"],
  mutate_response: ["by once_mutate(), and a response in the marker"],
};

function mutateRows() {
  items();
  for (const clients of crowds) {
    const by = (how) => () =>
      JSON.parse(execFileSync(join(programs, "mutate"), [servers.postgres, clients, roundSeconds, how].map(String), { encoding: "utf8", timeout: 60000 })).rate;
    const rates = inTurns(["bare", "marker", "response"].map(by));
    addRows(mutated, clients, rates, "BEGIN, the same UPDATE, COMMIT by libpq");
  }
  ok(number("SELECT count(*) FROM once_mutations WHERE outcome IS NOT NULL") > 0, "responses are there");
}

// ---- batches, and the sweep behind them -----------------------------------------------------------

const batches = { clients: 4, size: 1000, rate: 40400, ttl: 10 };

// Every second until `running` ends: how long the oldest expired one has waited, and how many there are.
async function watch(running) {
  const seen = [];
  let over = false;
  running.then(() => (over = true));
  for (const start = performance.now(); !over; await sleep(1000)) {
    seen.push({ at: (performance.now() - start) / 1000, age: number("SELECT once_mutation_oldest()") });
  }
  return seen;
}

const within = (seen, from, to) => seen.filter(({ at }) => at >= from * seconds && at < to * seconds).map(({ age }) => age);

async function batchRows() {
  install(`${batches.ttl}s`);
  const daemon = await startOnce(once, "--ledger", servers.postgres, "--coord", "none");
  const args = [servers.postgres, batches.clients, batches.size, batches.rate, seconds].map(String);
  const child = spawn(join(programs, "markers"), args, { stdio: ["ignore", "pipe", "inherit"] });
  const text = [];
  child.stdout.on("data", (data) => text.push(data));
  const running = event(child, "close");
  const cpuBefore = serverCpuUs(servers.postgresPid);
  const seen = await watch(running);
  const cpuUs = serverCpuUs(servers.postgresPid) - cpuBefore;
  ok((await running)[0] === 0, "every marker was new");
  const load = JSON.parse(Buffer.concat(text));
  await daemon.stop();
  const left = number("SELECT count(*) FROM once_mutations");
  const what = `markers in batches of ${batches.size}, ${seconds} s`;
  const [before, after] = [within(seen, 1 / 3, 2 / 3), within(seen, 2 / 3, 1)];
  const notes = { ...load, swept: load.rows - left, ages_s: seen.map(({ age }) => Math.round(age * 10) / 10) };
  report.add({ name: "batches", what, unit: "/s", ours: [load.rate], target: { atLeast: 40000 }, notes });
  report.add({ name: "batches_p50", what: "... a batch: median", unit: "ms", ours: [load.p50_ms] });
  report.add({ name: "batches_p99", what: "... a batch: p99", unit: "ms", ours: [load.p99_ms] });
  // Shows on a busy machine, too, what it takes: inserting, sweeping, vacuum, all of the server.
  report.add({ name: "batches_cpu", what: "... processor time of PostgreSQL for a row", unit: "us", ours: [cpuUs / load.rows], target: { atMost: 2e6 / 40000 } });
  report.add({ name: "batches_swept", what: "... swept meanwhile", unit: "rows", ours: [load.rows - left] });
  // A sweep that is idle pauses for up to five seconds; without one, a third later they were older by a third.
  report.add({ name: "batches_oldest", what: "... oldest expired one, last third: at most", unit: "s", ours: [Math.max(...after)], target: { atMost: 10 } });
  report.add({ name: "batches_drift", what: "... last third beside the one before: median", unit: "s", ours: [median(after) - median(before)], target: { atMost: 2 } });
}

const groups = { marked: markedRows, mutate: mutateRows, batches: batchRows };

// What is deleted has to be vacuumed: that is part of keeping up.
const servers = startServers("autovacuum = on");
try {
  for (const [name, group] of Object.entries(groups)) if (!only || only === name) await group();
} finally {
  killDaemons();
  servers.stop();
}
process.exitCode = report.end();
