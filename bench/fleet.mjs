// fleet.mjs PROGRAM PEERS [ONLY] [--json FILE] [--rounds N] [--seconds S] - once on real servers, beside what people use today.
//
// PROGRAM is bench/fleet as it was built, PEERS a copy of bench/peers with its packages installed.
// Starts a private redis-server (no persistence) and PostgreSQL (every commit flushed), measures ours
// and the peer in turns (A B A B ...), and prints one table: medians with their spread, and ratios
// that are medians of the ratios of the rounds. ONLY is redis, burst, hung, postgres or tiered. Exit status 0
// unless a target is missed by more than a factor of two, which noise does not explain.
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { countCommands } from "./monitor.mjs";
import { Report, median } from "./report.mjs";
import { clean, pgbench, serverCpuUs, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "string" }, rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "1" } },
});
const [program, peers, only] = positionals;
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const report = new Report(options.json, Boolean(only));

// ---- samples -----------------------------------------------------------------------------------

const run = (command, args, env) =>
  execFileSync(command, args, { encoding: "utf8", timeout: 60000, env: { ...process.env, ...env } });

// A machine that is busy with something else may be slow; it may not end the measurement.
const patient = (redis) => `${redis}?timeout_ms=5000`;

function ours(work, inFlight, { redis, postgres }) {
  const planes = [redis ? patient(redis) : "none", postgres ?? "none"];
  return () => JSON.parse(run(program, ["load", work, inFlight, seconds, ...planes].map(String)));
}

const mollifier = (inFlight, ...more) => () =>
  JSON.parse(run("node", [join(peers, "claims.mjs"), inFlight, seconds, servers.redis, ...more].map(String)));

// A B A B ...: one sample of each per round. Server time is per finished piece of work, warm-up
// and connecting included in neither.
function inTurns(sides, pid) {
  for (let round = 0; round < rounds; round++) {
    for (const side of sides) {
      clean(servers, "claims", "bench_rows");
      const before = serverCpuUs(pid);
      const start = process.hrtime.bigint();
      const sample = side.sample();
      const took = Number(process.hrtime.bigint() - start) / 1e9;
      side.rates.push(sample.rate);
      if (sample.client_us) side.clientUs.push(sample.client_us);
      side.busy.push((serverCpuUs(pid) - before) / 1e6 / took);
    }
  }
}

const side = (sample) => ({ sample, rates: [], clientUs: [], busy: [] });

function rateRow(row, pid, oursSample, peerSample) {
  const a = side(oursSample);
  const b = peerSample && side(peerSample);
  inTurns(b ? [a, b] : [a], pid);
  report.add({
    unit: "/s",
    ours: a.rates,
    peer: b?.rates,
    notes: { client_us: median(a.clientUs), peer_client_us: b && median(b.clientUs), server_busy: median(a.busy) },
    ...row,
  });
}

// ---- a burst -----------------------------------------------------------------------------------

const losersEach = 500;
const bursts = 8;

class Role {
  constructor(command, args) {
    this.child = spawn(command, args.map(String), { stdio: ["pipe", "pipe", "inherit"] });
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

const ourRole = (role, ...args) => new Role(program, [role, ...args, patient(servers.redis), "none"]);
const peerRole = (role, ...args) => new Role("node", [join(peers, "burst.mjs"), role, ...args, servers.redis]);

// From the call of publish to the answer, for each of the losers, in milliseconds.
async function burst(owner, crowd, key) {
  owner.say(`claim ${key}`);
  await owner.hear("claimed");
  for (const losers of crowd) losers.say(`wait ${key}`);
  for (const losers of crowd) await losers.hear("waiting");
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 25)); // anywhere between two polls
  owner.say("publish");
  const [at] = await owner.hear("published");
  const woken = [];
  for (const losers of crowd) woken.push(...(await losers.hear("woken")));
  return woken.map((ns) => Number(BigInt(ns) - BigInt(at)) / 1e6);
}

// Every connection of everybody is there when it counts: they are made when they are first used.
const warm = async (owner, crowd) => {
  for (let i = 0; i < 8; i++) await burst(owner, crowd, `warm-${crowd.length}-${i}`);
};

async function burstRound(role, result) {
  servers.redisCli("flushall", "sync");
  const owner = role("owner");
  await owner.hear("ready");
  await warm(owner, []);
  const owned = servers.redisCli("client", "list").match(/(?<= addr=)\S+/g);
  const crowd = [role("losers", losersEach), role("losers", losersEach)];
  for (const losers of crowd) await losers.hear("ready");
  await warm(owner, crowd);

  const seen = await countCommands(servers.redis, owned, () => burst(owner, crowd, "counted"));
  result.commands.push(Object.values(seen).reduce((a, b) => a + b, 0) / crowd.length);
  result.claims.push((seen.claim ?? seen.evalsha) / crowd.length);
  result.seen.push(seen);
  for (let i = 0; i < bursts; i++) {
    const waited = await burst(owner, crowd, `burst-${i}`);
    result.medians.push(median(waited));
    result.lasts.push(Math.max(...waited));
  }
  for (const one of [owner, ...crowd]) await one.end();
}

async function burstRows() {
  const empty = () => ({ medians: [], lasts: [], commands: [], claims: [], seen: [] });
  const [a, b] = [empty(), empty()];
  for (let round = 0; round < rounds; round++) {
    await burstRound(ourRole, a);
    await burstRound(peerRole, b);
  }
  const peer = "trigger.dev redis-worker, polled every 25 ms";
  const who = `burst of ${2 * losersEach} in 2 processes`;
  report.add({ name: "burst_wake", what: `${who}: median`, unit: "ms", ours: a.medians, peer: b.medians, against: peer, target: { atMost: 5 } });
  report.add({ name: "burst_last", what: `${who}: the last`, unit: "ms", ours: a.lasts, peer: b.lasts, against: peer });
  const each = `burst: per process of ${losersEach}`;
  report.add({ name: "burst_claims", what: `${each}, claim questions`, unit: "", ours: a.claims, peer: b.claims, against: peer, target: { atMost: 1 } });
  const notes = { commands_of_both: a.seen, peer_commands_of_both: b.seen };
  report.add({ name: "burst_commands", what: `${each}, all commands`, unit: "", ours: a.commands, peer: b.commands, against: peer, target: { atMost: 1 }, notes });
}

// ---- Redis that does not answer ---------------------------------------------------------------

const callsHung = 20;

async function claimMs(owner, key) {
  const start = performance.now();
  owner.say(`claim ${key}`);
  await owner.hear("claimed");
  const took = performance.now() - start;
  owner.say("publish");
  await owner.hear("published");
  return took;
}

async function hungRound(result) {
  clean(servers, "claims");
  const owner = new Role(program, ["owner", servers.redis, servers.postgres]);
  await owner.hear("ready");
  const some = async (kind) => {
    const took = [];
    for (let i = 0; i < callsHung; i++) took.push(await claimMs(owner, `${kind}-${i}`));
    return median(took);
  };
  await some("warm");
  result.healthy.push(await some("healthy"));
  process.kill(servers.redisPid, "SIGSTOP");
  try {
    result.first.push((await claimMs(owner, "first")) - result.healthy.at(-1));
    result.later.push(await some("later"));
  } finally {
    process.kill(servers.redisPid, "SIGCONT");
  }
  await owner.end();
}

async function hungRows() {
  const result = { healthy: [], first: [], later: [] };
  for (let round = 0; round < rounds; round++) await hungRound(result);
  const binds = "the deadline of coord, 100 ms,";
  report.add({ name: "hung_first", what: "redis + postgres, redis hung: first claim, +", unit: "ms", ours: result.first, target: { atMost: 150 }, binds });
  report.add({ name: "hung_later", what: "redis + postgres, redis hung: later claims", unit: "ms", ours: result.later, peer: result.healthy, against: "the same claim while redis answers" });
}

// ---- groups ------------------------------------------------------------------------------------

function redisRows() {
  const against = "trigger.dev redis-worker: claimIdempotency + publishClaim";
  for (const n of [50, 256]) {
    const binds = "what a step costs the one thread of redis-server";
    const row = { name: `redis_pairs_${n}`, what: `redis: claim + publish, ${n} in flight`, against, target: { ratio: 6 }, binds };
    rateRow(row, servers.redisPid, ours("pairs", n, { redis: servers.redis }), mollifier(n));
  }
  const row = { name: "redis_replay_256", what: "redis: replay of an answer, 256 in flight", against: "trigger.dev redis-worker: claimIdempotency" };
  rateRow(row, servers.redisPid, ours("replay", 256, { redis: servers.redis }), mollifier(256, "replay"));
}

function postgresRows() {
  ours("pairs", 1, { postgres: servers.postgres })(); // makes the schema
  const against = "pgbench -M prepared -c 32: one-row INSERTs, same table";
  for (const n of [64, 256]) {
    const binds = "what a transaction costs the server";
    const row = { name: `postgres_pairs_${n}`, what: `postgres: claim + publish, ${n} in flight`, against, target: { ratio: 3 }, binds };
    rateRow(row, servers.postgresPid, ours("pairs", n, { postgres: servers.postgres }), pgbench(servers, 32, Math.ceil(seconds)));
  }
  const row = { name: "postgres_replay_256", what: "postgres: replay of an answer, 256 in flight" };
  rateRow(row, servers.postgresPid, ours("replay", 256, { postgres: servers.postgres }));
}

function tieredRows() {
  for (const [work, what] of [["pairs", "claim + publish"], ["replay", "replay of an answer"]]) {
    const row = { name: `tiered_${work}_256`, what: `redis + postgres: ${what}, 256 in flight` };
    rateRow(row, servers.postgresPid, ours(work, 256, servers));
  }
}

const groups = { redis: redisRows, burst: burstRows, hung: hungRows, postgres: postgresRows, tiered: tieredRows };

const servers = startServers();
try {
  for (const [name, rows] of Object.entries(groups)) if (!only || only === name) await rows();
} finally {
  servers.stop();
}
process.exitCode = report.end();
