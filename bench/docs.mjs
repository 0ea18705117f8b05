// docs.mjs DIR PAGE - puts the numbers of the last run (DIR/core.json, fleet.json and so on) into PAGE,
// between the markers. A file that is not there leaves its table as it is.
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

const heads = { limits: "| what | ours | the limit | how near | target |" };

function table(rows, head = "| what | ours | baseline or peer | ratio | target |") {
  return [head, "|---|---|---|---|---|", ...rows.map(line)].join("\n");
}

// Rows that say in their notes where they belong: { grid: [table, line, column], cell }.
function grids(rows) {
  const tables = new Map();
  for (const { notes } of rows) {
    const [name, line, column] = notes.grid;
    if (!tables.has(name)) tables.set(name, { columns: new Set(), lines: new Map() });
    const { columns, lines } = tables.get(name);
    columns.add(column);
    lines.set(line, { ...lines.get(line), [column]: notes.cell });
  }
  return [...tables].map(([name, { columns, lines }]) => {
    const cells = [...lines].map(([line, cell]) => `| ${[line, ...[...columns].map((column) => cell[column] ?? "")].join(" | ")} |`);
    return [`| ${[name, ...columns].join(" | ")} |`, `|${"---|".repeat(columns.size + 1)}`, ...cells].join("\n");
  });
}

function tables(name, rows) {
  const plain = rows.filter((row) => !row.notes?.grid);
  const all = grids(rows.filter((row) => row.notes?.grid));
  if (plain.length) all.push(table(plain, heads[name]));
  return all.join("\n\n");
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
for (const name of ["core", "fleet", "doors", "runs", "mutations", "peers", "limits", "growth"]) {
  const file = join(dir, `${name}.json`);
  if (existsSync(file)) text = put(text, name, tables(name, Object.values(JSON.parse(readFileSync(file, "utf8")))));
}
writeFileSync(page, text);
