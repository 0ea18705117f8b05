// growth.mjs BUILD [ONLY] [--json FILE] [--rounds N] [--seconds S] [--fill S] - what more of something
// costs.
//
// BUILD is where the programs of bench/ were built, with the command beside it. Starts a private
// redis-server and PostgreSQL. ONLY is one of
//
//   flight    claim + publish through the library with 1 to 1,024 in flight: rate and p99
//   held      a claim + publish while 10^4, 10^6 and 10^7 keys are held; memory per key, beside
//             redis-server's for the same keys and values. Filling ends after --fill seconds, and the
//             largest count is left out where memory is short: what was reached is what is printed.
//   waiters   from publish to the last answer, for 10 to 10,000 who wait: in a process, at one daemon,
//             at two
//   daemons   the same load at one daemon and at two on the same servers
//
// Rows with `grid` in their notes (which table, line, column) become tables of their own in
// docs/performance.md. Exit status 0 unless something is not as it should be: there are no targets.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Report, median, number } from "./report.mjs";
import { clean, killDaemons, startOnce, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "0.4" },
    fill: { type: "string", default: "55" },
  },
});
const [build, only] = positionals;
const once = join(build, "../once");
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const report = new Report(options.json, Boolean(only));

const ok = (condition, what) => {
  if (!condition) throw new Error(`not so: ${what}`);
};

const text = (command, ...args) => execFileSync(command, args.map(String), { encoding: "utf8", timeout: 300000 });
const growth = (...args) => text(join(build, "growth"), ...args);
const coord = () => `${servers.redis}?timeout_ms=5000`;
const count = (n) => n.toLocaleString("en-US");

function onDisk(sample) {
  const dir = mkdtempSync(join(servers.dir, "sqlite-"));
  const result = sample(`sqlite:${dir}/claims.db`);
  rmSync(dir, { recursive: true });
  return result;
}

const emptied = () => clean(servers, "claims", "runs");

// ---- in flight ---------------------------------------------------------------------------------

const stores = {
  memory: (sample) => sample("memory:", "none"),
  SQLite: (sample) => onDisk((ledger) => sample("none", ledger)),
  Redis: (sample) => sample(coord(), "none"),
  PostgreSQL: (sample) => sample("none", servers.postgres),
};

function flight() {
  const levels = [1, 8, 64, 256, 1024];
  for (const [store, at] of Object.entries(stores)) {
    const samples = levels.map(() => []);
    for (let round = 0; round < rounds; round++) {
      for (const [i, n] of levels.entries()) {
        if (store !== "memory") emptied();
        samples[i].push(at((...planes) => JSON.parse(growth("flight", n, seconds, ...planes))));
      }
    }
    for (const [i, n] of levels.entries()) {
      const p99 = median(samples[i].map((s) => s.p99_ms));
      const grid = ["claim + publish per second, and the 99th percentile of its time", `${count(n)} in flight`, store];
      const cell = `${number(median(samples[i].map((s) => s.rate)))}, ${number(p99)} ms`;
      report.add({
        name: `flight_${store.toLowerCase()}_${n}`, what: `${store}: claim + publish, ${count(n)} in flight`, unit: "/s",
        ours: samples[i].map((s) => s.rate), notes: { grid, cell, p50_ms: median(samples[i].map((s) => s.p50_ms)), p99_ms: p99 },
      });
      console.error(`${" ".repeat(46)}p99 ${number(p99)} ms`);
    }
  }
}

// ---- held keys ---------------------------------------------------------------------------------

const enough = 8 * 1024 * 1024; // KiB: 10^7 records of ours, or redis-server's, and room to move

const heldCounts = () => {
  const available = Number(readFileSync("/proc/meminfo", "utf8").match(/MemAvailable:\s+(\d+)/)[1]);
  return available >= enough ? [1e4, 1e6, 1e7] : [1e4, 1e6];
};

const usedMemory = () => Number(servers.redisCli("info", "memory").match(/used_memory:(\d+)/)[1]);

const fill = (counts, ...planes) =>
  growth("keys", ...planes, options.fill, ...counts).trim().split("\n").map((line) => JSON.parse(line));

// One line for each count that was reached.
function heldRows(store, lines) {
  for (const { wanted, keys, us } of lines) {
    const reached = keys < wanted ? ` (at ${count(keys)})` : "";
    report.add({
      name: `held_${store.toLowerCase()}_${wanted}`, what: `${store}: claim + publish, ${count(keys)} keys held`, unit: "µs", ours: us,
      notes: { grid: ["µs per claim + publish, 64 in flight, while so many keys are held", `${count(wanted)} keys`, store],
        cell: `${number(median(us))}${reached}`, keys },
    });
  }
}

// The last line, and what was timed behind it.
const keysAfter = ({ keys, us }) => keys + us.length * Math.min(20000, Math.floor(keys / 50));

// What the server has for each key when so many were made by `make`, which says how many.
function serverBytes(make) {
  servers.redisCli("flushall", "sync");
  const before = usedMemory();
  const keys = make();
  return { keys, bytes: (usedMemory() - before) / keys };
}

// The same bytes as keys and values of ours, made by the server itself.
function plainSets(keys) {
  const script = `for i = 1, ${keys} do
    redis.call('SET', string.format('benchorder-%016x', i), 'thirty-two bytes of canonical an', 'PX', 86400000)
  end`;
  servers.redisCli("eval", script, "0");
  ok(Number(servers.redisCli("dbsize")) === keys, "the server has all keys");
  return keys;
}

// More records like those of ours that are there, made by the server itself: asking for each of ten
// million would take most of a minute.
function copies(more) {
  const script = `local shard = redis.call('KEYS', '*{*}')[1]
    local found, like = redis.call('HRANDFIELD', shard, 100, 'WITHVALUES'), nil
    for i = 1, #found, 2 do
      if found[i] ~= '' and string.byte(found[i]) ~= 0 then like = found[i + 1] end
    end
    for i = 1, ${more} do redis.call('HSET', shard, string.format('\\5benchcopy-%017x', i), like) end
    return redis.call('HLEN', shard)`;
  ok(Number(servers.redisCli("eval", script, "0")) > more, "the server has all of them");
}

function heldByRedis() {
  emptied();
  const before = usedMemory();
  const [most, ...counts] = heldCounts().reverse();
  const lines = fill(counts.reverse(), coord(), "none");
  const keys = keysAfter(lines.at(-1));
  const bytes = (usedMemory() - before) / keys;
  copies(most - keys);
  heldRows("Redis", [...lines, ...fill([`+${most}`], coord(), "none")]);
  return { keys, bytes };
}

function held() {
  const inMemory = fill(heldCounts(), "memory:", "none");
  heldRows("memory", inMemory);
  const ours = heldByRedis();
  const plain = serverBytes(() => plainSets(ours.keys));
  emptied();
  const row = { unit: "bytes", peer: [plain.bytes], against: "redis-server: SET key value PX" };
  const heap = (inMemory.find(({ wanted }) => wanted === 1e6) ?? inMemory.at(-1)).bytes;
  report.add({ ...row, name: "bytes_memory", what: "memory: a key of 27 bytes with its answer of 32", ours: [heap] });
  report.add({ ...row, name: "bytes_redis", what: "Redis: the same, in the server", ours: [ours.bytes] });
}

// ---- waiters -----------------------------------------------------------------------------------

class Crowd {
  constructor(waiters, daemons) {
    this.child = spawn(join(build, "growth"), ["crowd", waiters, ...daemons.map((d) => d.resp)].map(String), { stdio: ["pipe", "pipe", "inherit"] });
    this.lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }
  async hear(word) {
    const { value, done } = await this.lines.next();
    if (done || !value.startsWith(word)) throw new Error(`"${value}" instead of "${word}"`);
    return value.split(" ").slice(1);
  }
  say(line) {
    this.child.stdin.write(`${line}\n`);
  }
  async end() {
    const exited = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.stdin.end();
    await exited;
  }
}

async function waiting(daemons) {
  let sum = 0;
  for (const d of daemons) {
    const metrics = await (await fetch(`http://127.0.0.1:${d.http}/metrics`)).text();
    sum += Number(metrics.match(/^once_waiters (\S+)$/m)[1]);
  }
  return sum;
}

async function wokenAt(daemons, waiters, times) {
  const crowd = new Crowd(waiters, daemons);
  const last = [];
  await crowd.hear("ready");
  for (let i = 0; i < times; i++) {
    crowd.say(`wait crowd-${waiters}-${i}`);
    await crowd.hear("asked");
    while ((await waiting(daemons)) < waiters) await sleep(10);
    crowd.say("publish");
    last.push(Number((await crowd.hear("woken"))[0]));
  }
  await crowd.end();
  return last;
}

async function waiters() {
  const levels = [10, 100, 1000, 10000];
  const times = rounds + 2;
  const table = "ms from publish to the last answer";
  const add = (where, n, ours) =>
    report.add({ name: `waiters_${where.replace(/\W+/g, "_").toLowerCase()}_${n}`, what: `${where}: ${count(n)} who wait`, unit: "ms", ours,
      notes: { grid: [table, `${count(n)} who wait`, where], cell: number(median(ours)) } });
  const inProcess = {
    memory: (sample) => sample("memory:", "none"),
    SQLite: (sample) => onDisk((ledger) => sample("memory:", ledger)),
    "Redis, two handles": (sample) => sample(coord(), "none"),
  };
  for (const [where, at] of Object.entries(inProcess))
    for (const n of levels) add(where, n, at((...planes) => JSON.parse(growth("wake", n, times, ...planes))).last_ms);

  const daemon = () => startOnce(once, "--ledger", "none", "--coord", coord());
  const one = await startOnce(once, "--ledger", "none");
  const two = [await daemon(), await daemon()];
  for (const n of levels) add("one daemon, memory", n, await wokenAt([one], n, times));
  for (const n of levels) add("two daemons on Redis", n, await wokenAt(two, n, times));
  for (const d of [one, ...two]) await d.stop();
}

// ---- daemons -----------------------------------------------------------------------------------

// Each with fresh processes on the same servers; as many connections in all.
async function rateAt(daemons, ...planes) {
  emptied();
  const started = [];
  for (let i = 0; i < daemons; i++) started.push(await startOnce(once, ...planes));
  const { rate } = JSON.parse(text(join(build, "pairs"), started.map((d) => d.resp).join(","), 256, 2 * seconds));
  for (const d of started) await d.stop();
  return rate;
}

async function daemons() {
  const fleets = {
    Redis: ["--ledger", "none", "--coord", coord()],
    PostgreSQL: ["--ledger", servers.postgres, "--coord", "none"],
    "Redis + PostgreSQL": ["--ledger", servers.postgres, "--coord", coord()],
  };
  for (const [name, planes] of Object.entries(fleets)) {
    const row = { name: `daemons_${name.replace(/\W+/g, "_").toLowerCase()}`, what: `two daemons on ${name}, 256 clients`, unit: "/s", ours: [], peer: [], against: "one daemon, as many clients" };
    for (let round = 0; round < rounds; round++) {
      row.ours.push(await rateAt(2, ...planes));
      row.peer.push(await rateAt(1, ...planes));
    }
    report.add(row);
  }
}

const groups = { flight, held, waiters, daemons };

const servers = startServers();
try {
  for (const [name, group] of Object.entries(groups)) if (!only || only === name) await group();
} finally {
  killDaemons();
  servers.stop();
}
process.exitCode = report.end();
