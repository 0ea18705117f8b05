// table.mjs DIR SINCE - one table of everything that was measured since then, in milliseconds of 1970:
// DIR/core.json, DIR/fleet.json and so on; and all that is known, old rows included, as DIR/bench.json.
//
// table.mjs DIR --keep PART [GROUP] - puts the rows on standard input, as bench/core prints them, into
// DIR/PART.json; with a GROUP, beside those that are there.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parts } from "./parts.mjs";
import { printHead, printRow, saveRows } from "./report.mjs";

const [dir, what, part, group] = process.argv.slice(2);

function table(since) {
  const known = {};
  for (const name of parts) {
    const file = join(dir, `${name}.json`);
    if (existsSync(file)) known[name] = JSON.parse(readFileSync(file, "utf8"));
  }
  printHead();
  for (const row of Object.values(known).flatMap(Object.values)) if (row.at >= since) printRow(row);
  writeFileSync(join(dir, "bench.json"), `${JSON.stringify(known, null, 1)}\n`);
}

if (what === "--keep") saveRows(join(dir, `${part}.json`), JSON.parse(readFileSync(0, "utf8")), Boolean(group));
else table(Number(what));
