// monitor.mjs - which commands a redis-server got, from whom, while something was done.
import { spawn, execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const line = /^[\d.]+ \[\d+ (\S+)\] "([^"]+)"/;

// Commands of clients, except those at the addresses `ours`; what a script calls inside the
// server is no command of a client. MONITOR slows the server down: time nothing meanwhile.
export async function countCommands(url, except, during) {
  const child = spawn("redis-cli", ["-u", url, "monitor"], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const mark = () => {
    const text = randomUUID();
    execFileSync("redis-cli", ["-u", url, "echo", text]);
    return text;
  };
  await lines.next(); // OK
  await during();
  const end = mark();
  const byName = {};
  let total = 0;
  for (;;) {
    const { value } = await lines.next();
    if (value.includes(end)) break;
    const [, from, name] = value.match(line) ?? [];
    if (!from || from === "lua" || except.includes(from)) continue;
    total++;
    byName[name.toLowerCase()] = (byName[name.toLowerCase()] ?? 0) + 1;
  }
  child.kill();
  return { total, byName };
}
