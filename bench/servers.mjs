// servers.mjs - private servers for measurements: redis-server (no persistence), PostgreSQL (every
// commit flushed), and the daemon.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

const here = import.meta.dirname ?? dirname(new URL(import.meta.url).pathname);

// Commits are flushed; the rest keeps checkpoints out of measurements that last seconds.
const postgresSettings = `
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = 256MB
max_wal_size = 4GB
checkpoint_timeout = 30min
autovacuum = off`;

// `more`: lines of the configuration of PostgreSQL, which win over those above.
export function startServers(more = "") {
  const dir = mkdtempSync(join(tmpdir(), "once-bench-"));
  execFileSync(join(here, "../tests/servers"), ["start", "--for", `${process.pid}`, dir, "redis", "postgres"], {
    env: { ...process.env, ONCE_POSTGRES_SETTINGS: `${postgresSettings}\n${more}` },
    stdio: ["ignore", "inherit", "inherit"],
  });
  const env = readFileSync(join(dir, "env"), "utf8");
  const get = (name) => env.match(new RegExp(`^export ONCE_TEST_${name}=(.*)$`, "m"))[1];
  const servers = {
    dir,
    redis: get("REDIS"),
    redisPid: Number(get("REDIS_PID")),
    postgres: get("POSTGRES"),
    postgresPid: Number(get("POSTGRES_PID")),
  };
  servers.redisCli = (...args) => execFileSync("redis-cli", ["-u", servers.redis, ...args], { encoding: "utf8" });
  servers.psql = (sql) =>
    execFileSync("psql", ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", servers.postgres, "-c", sql], { encoding: "utf8" });
  servers.stop = () => execFileSync(join(here, "../tests/servers"), ["stop", dir]);
  return servers;
}

// Nothing is left of the sample before in tables of that name, and none of its writing is still to be
// done.
export function clean({ redisCli, psql }, ...names) {
  redisCli("flushall", "sync");
  const list = names.map((name) => `'${name}'`).join(", ");
  const tables = psql(`SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE tablename IN (${list})`);
  for (const table of tables.split("\n").filter(Boolean)) psql(`TRUNCATE ${table}`);
  psql("CHECKPOINT");
}

// One-row INSERTs into a table with the same columns and indexes as the ledger's own, which is there
// already: what the database itself does. Returns a sample: () => { rate }.
export function pgbench(servers, clients, seconds) {
  const schema = servers.psql("SELECT quote_ident(schemaname) FROM pg_tables WHERE tablename = 'claims' LIMIT 1").trim();
  servers.psql(`SET client_min_messages = warning; CREATE TABLE IF NOT EXISTS bench_rows (LIKE ${schema}.claims INCLUDING ALL)`);
  return pgbenchScript(servers, join(here, "insert.sql"), clients, seconds);
}

// Any script: () => { rate }, in transactions per second.
export function pgbenchScript(servers, file, clients, seconds) {
  const bin = execFileSync("pg_config", ["--bindir"], { encoding: "utf8" }).trim();
  const how = ["-n", "-M", "prepared", "-c", clients, "-j", Math.min(2, clients), "-T", seconds, "-f", file];
  return () => {
    const text = execFileSync(join(bin, "pgbench"), [...how, servers.postgres].map(String), { encoding: "utf8", timeout: 60000, stdio: ["ignore", "pipe", "ignore"] });
    const tps = text.match(/^tps = ([\d.]+)/m);
    if (!tps) throw new Error(`pgbench got nowhere: ${text}`);
    return { rate: Number(tps[1]) };
  };
}

// Processor time of a server and of all processes it has started, in microseconds.
export function serverCpuUs(pid) {
  const ticks = (of, fields) => {
    const stat = readFileSync(`/proc/${of}/stat`, "utf8").split(") ")[1].split(" ");
    return { parent: Number(stat[1]), ticks: fields.reduce((sum, i) => sum + Number(stat[i]), 0) };
  };
  let sum = ticks(pid, [11, 12, 13, 14]).ticks;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const child = ticks(name, [11, 12]);
      if (child.parent === pid) sum += child.ticks;
    } catch {
      // it has ended meanwhile
    }
  }
  return sum * 10000;
}

const daemons = new Set();

// { child, resp, http, stop }: ports.
export async function startOnce(once, ...args) {
  const doors = ["--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
  const child = spawn(once, ["serve", "--log-level", "error", ...doors, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  daemons.add(child);
  const exited = new Promise((resolve) => child.once("exit", resolve));
  exited.then(() => daemons.delete(child));
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  if (!value) throw new Error("the daemon did not start");
  const port = (door) => Number(value.match(new RegExp(`${door} \\S*?:(\\d+)`))[1]);
  const stop = () => (child.kill("SIGTERM"), exited);
  return { child, resp: port("resp"), http: port("http"), stop };
}

export function killDaemons() {
  for (const child of daemons) child.kill("SIGKILL");
}
