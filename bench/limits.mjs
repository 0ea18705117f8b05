// limits.mjs BUILD [--json FILE] [--rounds N] [--seconds S] - how near to what binds it.
//
// BUILD is where the programs of bench/ were built, with the command beside it. Each of our figures that
// the disk, the network of the machine, redis-server or PostgreSQL binds, in turns with that limit
// (A B A B ...). The ratio says how near it is: 1 is the limit itself; more than 1 is possible where one
// flush or one command carries many claims. Exit status 0 unless something is not as it should be.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Report } from "./report.mjs";
import { clean, killDaemons, pgbench, startOnce, startServers } from "./servers.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "string" }, rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "0.5" } },
});
const [build] = positionals;
const once = join(build, "../once");
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const report = new Report(options.json);

// ---- samples -----------------------------------------------------------------------------------

const text = (command, ...args) =>
  execFileSync(command, args.map(String), { encoding: "utf8", timeout: 120000, stdio: ["ignore", "pipe", "ignore"] });
const rateOf = (program, ...args) => JSON.parse(text(join(build, program), ...args)).rate;

const limit = (...args) => () => rateOf("limits", ...args, seconds);
const claims = (inFlight, coord, ledger) => () => rateOf("fleet", "load", "claims", inFlight, seconds, coord, ledger);

// A file of its own for each sample, on the disk that is measured.
function durable(inFlight) {
  return () => {
    const dir = mkdtempSync(join(servers.dir, "sqlite-"));
    const rate = claims(inFlight, "none", `sqlite:${dir}/claims.db`)();
    rmSync(dir, { recursive: true });
    return rate;
  };
}

const redisPort = () => Number(new URL(servers.redis).port);

// As many as it takes for about `seconds`.
function redisBenchmark(port, perSecond, ...command) {
  const load = ["-P", 16, "-c", 50, "-n", Math.ceil(perSecond * seconds), "-r", 1000000000, "--csv"];
  return () => Number(text("redis-benchmark", "-p", port, ...load, ...command).trim().split("\n").at(-1).split('","')[1]);
}

// ---- rows --------------------------------------------------------------------------------------

// All that one limit binds, in turns with it: [[name, what, sample, against], ...].
async function near(limit, figures) {
  const rows = figures.map(([name, what, , against]) => ({ name, what, unit: "/s", ours: [], peer: [], against }));
  for (let round = 0; round < rounds; round++) {
    for (const [i, [, , sample]] of figures.entries()) {
      clean(servers, "claims", "runs", "bench_rows");
      rows[i].ours.push(await sample());
    }
    clean(servers, "claims", "runs", "bench_rows");
    const most = await limit();
    for (const row of rows) row.peer.push(most);
  }
  for (const row of rows) report.add(row);
}

async function rows() {
  const coord = `${servers.redis}?timeout_ms=5000`;
  const d = await startOnce(once, "--ledger", "none");
  claims(1, "none", servers.postgres)(); // makes the schema
  const oneRow = (clients) => { // connecting counts there
    const sample = pgbench(servers, clients, Math.ceil(seconds + 1));
    return () => sample().rate;
  };
  const triggers = async () => {
    const door = await startOnce(once, "--ledger", servers.postgres, "--coord", "none", "--gate", "off");
    const rate = rateOf("triggers", "load", door.resp, 256, 1, seconds, "ledger");
    await door.stop();
    return rate;
  };
  // Gate tripped, nobody drains.
  const buffered = async () => {
    const gate = ["--gate-threshold", "1", "--gate-hold", "1h", "--drainer", "off"];
    const door = await startOnce(once, "--ledger", servers.postgres, "--coord", coord, ...gate);
    for (let i = 0; i < 2; i++) text("redis-cli", "-p", door.resp, "ONCE.TRIGGER", "bench", "{}");
    const rate = rateOf("triggers", "load", door.resp, 8, 32, seconds, "buffer");
    await door.stop();
    return rate;
  };
  const pairs = async () => {
    const dir = mkdtempSync(join(servers.dir, "daemon-"));
    const door = await startOnce(once, "--data", dir);
    const rate = rateOf("pairs", door.resp, 256, seconds);
    await door.stop();
    rmSync(dir, { recursive: true });
    return rate;
  };
  const disk = "the disk: fdatasync of one page";
  const set = "redis-server: SET k v NX PX, redis-benchmark -P 16";
  const row = "pgbench -M prepared -c 32: one-row INSERTs";
  const claim = ["ONCE.CLAIM", "bench", "k:__rand_int__", "LEASE", 30000, "WAIT", 0];
  await near(limit("sync", servers.dir), [
    ["near_disk_1", "SQLite: claims, 1 in flight", durable(1), disk],
    ["near_disk_256", "SQLite: claims, 256 in flight", durable(256), `${disk}; claims per flush`],
    ["near_disk_daemon", "daemon on SQLite: claim + publish, 256 clients", pairs, `${disk}; pairs per flush`],
  ]);
  await near(limit("loopback"), [["near_loopback", "daemon: claims over RESP, 1 in flight", limit("claim", d.resp), "loopback: one byte there and back over TCP"]]);
  await near(limit("ping", redisPort()), [["near_loopback_redis", "Redis: claims, 1 in flight", claims(1, coord, "none"), "redis-server: PING, 1 in flight"]]);
  await near(redisBenchmark(redisPort(), 400000, "PING"), [
    ["near_ping", "daemon: claims over RESP, -P 16", redisBenchmark(d.resp, 400000, ...claim), "the same redis-benchmark at redis-server: PING"],
  ]);
  await near(redisBenchmark(redisPort(), 400000, "SET", "k:__rand_int__", "v", "NX", "PX", 30000), [
    ["near_set", "Redis: claims, 256 in flight", claims(256, coord, "none"), set],
    ["near_accept", "triggers into the buffer on Redis, 256 in flight", buffered, set],
  ]);
  await near(oneRow(1), [["near_row_1", "PostgreSQL: claims, 1 in flight", claims(1, "none", servers.postgres), "pgbench -M prepared -c 1: one-row INSERTs, same table"]]);
  await near(oneRow(32), [
    ["near_row_256", "PostgreSQL: claims, 256 in flight", claims(256, "none", servers.postgres), `${row}, same table`],
    ["near_trigger", "PostgreSQL: durable triggers, 256 clients", triggers, `${row}, a table of claims`],
  ]);
  await d.stop();
}

const servers = startServers();
try {
  await rows();
} finally {
  killDaemons();
  servers.stop();
}
process.exitCode = report.end();
