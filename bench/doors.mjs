// doors.mjs ONCE PAIRS [ONLY] [--json FILE] [--rounds N] [--seconds S] - the daemon beside servers that people know.
//
// ONCE is the command, PAIRS is bench/pairs as they were built. Starts private servers on loopback
// (redis-server and nginx besides ours), measures in turns (A B A B ...) with the same settings of the
// same load generator, and prints one table. ONLY is resp, http or daemon.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Report } from "./report.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "string" }, rounds: { type: "string", default: "3" }, seconds: { type: "string", default: "1" } },
});
const [once, pairs, only] = positionals;
const here = import.meta.dirname ?? dirname(new URL(import.meta.url).pathname);
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const report = new Report(options.json, Boolean(only));
const work = mkdtempSync(join(tmpdir(), "once-doors-"));
const children = new Set();

// ---- servers -----------------------------------------------------------------------------------

function start(command, args) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "ignore"] });
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

async function stop(child) {
  const exited = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await exited;
}

// { child, resp, http }: ports.
async function startOnce(...args) {
  const child = start(once, ["serve", "--log-level", "error", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", ...args]);
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  const port = (door) => Number(value.match(new RegExp(`${door} \\S*?:(\\d+)`))[1]);
  return { child, resp: port("resp"), http: port("http") };
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

async function until(ready) {
  for (let i = 0; i < 200; i++) {
    try {
      return ready();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }
  throw new Error("a server does not answer");
}

const quiet = { stdio: ["ignore", "pipe", "ignore"], encoding: "utf8" };
const redisCli = (port, ...args) => execFileSync("redis-cli", ["-p", `${port}`, ...args], quiet);

async function startRedis() {
  const port = await freePort();
  const child = start("redis-server", ["--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--dir", work]);
  await until(() => redisCli(port, "ping"));
  return { child, port };
}

// One worker, no access log: what serves a constant as fast as it can.
async function startNginx() {
  const port = await freePort();
  const dir = join(work, "nginx");
  mkdirSync(dir, { recursive: true });
  const temps = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${dir}/${name};`).join(" ");
  writeFileSync(
    join(dir, "nginx.conf"),
    `daemon off; worker_processes 1; pid ${dir}/pid; error_log ${dir}/error.log;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 100000000; ${temps}
  server { listen 127.0.0.1:${port}; default_type application/json; location / { return 200 '{"answer":"static"}'; } } }`,
  );
  const child = start("nginx", ["-e", join(dir, "error.log"), "-p", dir, "-c", join(dir, "nginx.conf")]);
  await until(() => execFileSync("curl", ["-fsS", `http://127.0.0.1:${port}/`], quiet));
  return { child, port };
}

// ---- samples -----------------------------------------------------------------------------------

const run = (command, args) => execFileSync(command, args.map(String), { encoding: "utf8", timeout: 120000, stdio: ["ignore", "pipe", "ignore"] });

function redisBenchmark(port, requests, ...command) {
  const text = run("redis-benchmark", ["-p", port, "-P", 16, "-c", 50, "-n", requests, "-r", 1000000000, "--csv", ...command]);
  return Number(text.trim().split("\n").at(-1).split('","')[1]);
}

function wrk(port, ...more) {
  const text = run("wrk", ["-t", 1, "-c", 64, "-d", `${Math.ceil(seconds)}s`, ...more, `http://127.0.0.1:${port}/`]);
  if (/Non-2xx|Socket errors/.test(text)) throw new Error(text);
  return Number(text.match(/Requests\/sec:\s+([\d.]+)/)[1]);
}

function inTurns(ours, peer) {
  const samples = { ours: [], peer: [] };
  for (let round = 0; round < rounds; round++) {
    samples.ours.push(ours(round));
    if (peer) samples.peer.push(peer(round));
  }
  return peer ? samples : { ours: samples.ours };
}

const rssKb = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);

// ---- groups ------------------------------------------------------------------------------------

async function resp() {
  const [ours, redis] = [await startOnce("--ledger", "none"), await startRedis()];
  const requests = Math.ceil(200000 * seconds);
  report.add({
    name: "resp_claim", what: "claims over RESP, -P 16", unit: "/s",
    ...inTurns(
      () => redisBenchmark(ours.resp, requests, "ONCE.CLAIM", "bench", "k:__rand_int__", "LEASE", 30000, "WAIT", 0),
      () => (redisCli(redis.port, "flushall"), redisBenchmark(redis.port, requests, "SET", "k:__rand_int__", "v", "NX", "GET", "PX", 30000)),
    ),
    against: "redis-server, SET k v NX GET PX, same redis-benchmark", target: { ratio: 1.2 },
    binds: "reading and writing sockets, as for redis-server,",
  });
  await Promise.all([stop(ours.child), stop(redis.child)]);
}

async function http() {
  const [ours, nginx] = [await startOnce("--ledger", "none"), await startNginx()];
  const token = redisCli(ours.resp, "ONCE.CLAIM", "bench", "done").split("\n")[1];
  redisCli(ours.resp, "ONCE.PUBLISH", "bench", "done", token, '{"answer":"static"}');
  report.add({
    name: "http_replay", what: "replays over HTTP, 64 connections", unit: "/s",
    ...inTurns(() => wrk(ours.http, "-s", join(here, "replay.lua")), () => wrk(nginx.port)),
    against: "nginx, return 200, one worker, same wrk", target: { ratio: 0.6 },
    binds: "a request that is carried out, not only read,",
  });
  await Promise.all([stop(ours.child), stop(nginx.child)]);
}

const idleConnections = 4000;

// Half of them at each door. The doors accept in order: when the last one is answered, all are there.
async function bytesPerConnection({ child, resp, http }) {
  const before = rssKb(child.pid);
  const sockets = [];
  for (let i = 0; i < idleConnections; i++) {
    const socket = connect(i % 2 ? resp : http, "127.0.0.1");
    await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    sockets.push(socket);
  }
  redisCli(resp, "ping");
  await (await fetch(`http://127.0.0.1:${http}/livez`)).text();
  const bytes = ((rssKb(child.pid) - before) * 1024) / idleConnections;
  for (const socket of sockets) socket.destroy();
  return bytes;
}

async function daemon() {
  const idle = await startOnce("--data", join(work, "idle"));
  report.add({ name: "daemon_rss", what: "memory of the idle daemon", unit: "KiB", ours: [rssKb(idle.child.pid)], target: { atMost: 20480 } });
  report.add({ name: "connection_rss", what: `memory of an idle connection, of ${idleConnections}`, unit: "bytes", ours: [await bytesPerConnection(idle)], target: { atMost: 2048 } });
  await stop(idle.child);
  const sample = (clients) => async (round) => {
    const d = await startOnce("--data", join(work, `pairs-${clients}-${round}`));
    const { rate } = JSON.parse(run(pairs, [d.resp, clients, seconds]));
    await stop(d.child);
    return rate;
  };
  for (const clients of [256, 64]) {
    const rates = [];
    for (let round = 0; round < rounds; round++) rates.push(await sample(clients)(round));
    report.add({
      name: `durable_pairs_${clients}`, what: `durable claim+publish over RESP, ${clients} clients`, unit: "/s", ours: rates,
      target: clients === 256 ? { atLeast: 20000 } : undefined, binds: "the flush of the disk",
    });
  }
}

const groups = { resp, http, daemon };
process.on("exit", () => { // also after an error that nobody has caught
  for (const child of children) child.kill("SIGKILL");
  rmSync(work, { recursive: true, force: true });
});
for (const [name, group] of Object.entries(groups)) if (!only || only === name) await group();
process.exitCode = report.end();
