// monitor.mjs - which commands a redis-server got, from whom, while something was done.
import { spawn, execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const line = /^[\d.]+ \[\d+ (\S+)\] (.*)$/;
const argument = /"((?:\\.|[^"\\])*)"/g;

// The step of once's script says what it asks for in the first byte of the op behind the head.
const verbs = { "\\x00": "claim", "\\x01": "publish", "\\x05": "peek", "\\x06": "watch" };

function nameOf(command) {
  const [name, , keys, ...rest] = [...command.matchAll(argument)].map((match) => match[1]);
  const op = rest[Number(keys) + 1];
  return verbs[op?.slice(0, 4)] ?? name.toLowerCase();
}

// Commands of clients by name, except those of clients at the addresses `except`; what a script calls
// inside the server is no command of a client. MONITOR slows the server down: time nothing
// meanwhile.
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
  for (;;) {
    const { value } = await lines.next();
    if (value.includes(end)) break;
    const [, from, command] = value.match(line) ?? [];
    if (!from || from === "lua" || except.includes(from)) continue;
    const name = nameOf(command);
    byName[name] = (byName[name] ?? 0) + 1;
  }
  child.kill();
  return byName;
}
