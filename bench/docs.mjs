// docs.mjs DIR PAGE - puts the numbers of the last run (DIR/core.json, fleet.json, doors.json,
// runs.json) into PAGE, between the markers. A file that is not there leaves its table as it is.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { availableParallelism, cpus } from "node:os";
import { join } from "node:path";
import { number } from "./report.mjs";

const [dir, page] = process.argv.slice(2);
const spread = ({ median, min, max }) => `${number(median)} (${number(min)}–${number(max)})`;

function line({ what, unit, ours, baseline, against, ratio, target, verdict }) {
  const cells = [
    unit ? `${what}, ${unit === "/s" ? "per second" : unit}` : what,
    spread(ours),
    baseline ? `${spread(baseline)}: ${against}` : "",
    ratio ? ratio.toPrecision(2) : "",
    target ? `${target}: ${verdict}` : "",
  ];
  return `| ${cells.join(" | ")} |`;
}

function table(rows) {
  const head = ["| what | ours | baseline or peer | ratio | target |", "|---|---|---|---|---|"];
  return [...head, ...Object.values(rows).map(line)].join("\n");
}

const version = (command, pattern) => execFileSync(command, ["--version"], { encoding: "utf8" }).match(pattern)[0];

function machine() {
  const programs = [
    `Redis ${version("redis-server", /(?<=v=)[\d.]+/)}`,
    `PostgreSQL ${version("psql", /[\d.]+/)}`,
    `node ${process.versions.node}`,
  ];
  return `${availableParallelism()} × ${cpus()[0].model}, shared by clients and servers; ${programs.join(", ")}.`;
}

function put(text, name, content) {
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`];
  const [before, rest] = text.split(begin);
  return `${before}${begin}\n${content}\n${end}${rest.split(end)[1]}`;
}

let text = put(readFileSync(page, "utf8"), "machine", machine());
for (const name of ["core", "fleet", "doors", "runs"]) {
  const file = join(dir, `${name}.json`);
  if (existsSync(file)) text = put(text, name, table(JSON.parse(readFileSync(file, "utf8"))));
}
writeFileSync(page, text);
