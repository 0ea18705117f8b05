// report.mjs - medians, the table and its verdicts, as bench/report.c has them.
import { existsSync, readFileSync, writeFileSync } from "node:fs";

export function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  if (q === 0.5 && sorted.length % 2 === 0) return (sorted[sorted.length / 2 - 1] + sorted[sorted.length / 2]) / 2;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}

export const median = (values) => (values.length ? quantile(values, 0.5) : undefined);

export function number(value) {
  if (value >= 1000) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(value >= 100 || Number.isInteger(value) ? 0 : value >= 1 ? 1 : 3);
}

const spread = ({ median, min, max }) => `${number(median)} (${number(min)}-${number(max)})`;

// ---- the table, of rows as they are in the files -----------------------------------------------

function print(what, unit, ours, peer, ratio, target, verdict) {
  console.error(
    `${what.padEnd(43)} ${unit.padEnd(5)} ${ours.padEnd(32)} ${peer.padEnd(32)} ${ratio.padStart(6)}  ${target.padEnd(12)} ${verdict}`.trimEnd(),
  );
}

export const printHead = () => print("what", "unit", "ours: median (min-max)", "peer", "ratio", "target", "verdict");

export function printRow({ what, unit, ours, baseline, against, ratio, target, verdict }) {
  print(what, unit, spread(ours), baseline ? spread(baseline) : "", ratio?.toFixed(2) ?? "", target ?? "", verdict ?? "");
  if (against) console.error(`${" ".repeat(46)}against ${against}`);
}

// Rows say when they were measured: those of a part that was not measured again stay in the file.
export function saveRows(file, rows, part) {
  const before = part && existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  const at = Date.now();
  const now = Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, { ...row, at }]));
  writeFileSync(file, `${JSON.stringify({ ...before, ...now }, null, 1)}\n`);
}

// ---- samples to rows ---------------------------------------------------------------------------

// How far a target was reached: 1 and more is reached.
function reached({ ours, ratio, target }) {
  if (!target) return 1;
  if (target.ratio) return ratio / target.ratio;
  if (target.atLeast) return median(ours) / target.atLeast;
  return median(ours) > 0 ? target.atMost / median(ours) : 1;
}

// By how much it is missed stands in the verdict; what binds it, behind it.
function verdictOf(row) {
  if (!row.target) return "";
  const part = reached(row);
  if (part >= 1) return "ok";
  const how = `${part >= 0.5 ? "missed" : farOff}: ${part.toPrecision(2)} of it`;
  return row.binds ? `${how}; ${row.binds} binds` : how;
}

const farOff = "MISSED BY FAR";

function targetText(target) {
  if (!target) return "";
  if (target.ratio) return `ratio >= ${target.ratio}`;
  return target.atLeast ? `>= ${target.atLeast}` : `<= ${target.atMost}`;
}

export class Report {
  rows = [];

  // With a file, every row is there as soon as it is measured, whatever happens to the next one. `part`:
  // only some groups are measured; the other rows of the file stay.
  constructor(file, part) {
    this.file = file;
    this.part = part;
  }

  // { name, what, unit, ours, peer, against, target, binds, notes }: samples; round i of the peer belongs
  // to round i of ours. `binds`: what keeps it from being better; said where a target is missed.
  add(row) {
    const ratio = row.peer && median(row.ours.map((value, i) => value / row.peer[i]));
    const all = { ...row, ratio };
    all.verdict = verdictOf(all);
    if (this.rows.length === 0) printHead();
    this.rows.push(all);
    printRow(this.#rowJson(all));
    if (this.file) saveRows(this.file, this.json(), this.part);
  }

  // As bench/core prints one with --json.
  #rowJson({ what, unit, ours, peer, against, ratio, target, verdict, notes }) {
    const samples = (values) => ({ median: median(values), min: Math.min(...values), max: Math.max(...values), rounds: values.length });
    const row = { what, unit, ours: samples(ours) };
    if (peer) Object.assign(row, { baseline: samples(peer), against, ratio });
    if (target) Object.assign(row, { target: targetText(target), verdict });
    if (notes) row.notes = notes;
    return row;
  }

  json() {
    return Object.fromEntries(this.rows.map((row) => [row.name, this.#rowJson(row)]));
  }

  // Exit status. What was measured shortly is not judged.
  end() {
    const far = this.rows.some((row) => row.verdict.startsWith(farOff));
    if (far) console.error("a target was missed by more than a factor of two");
    if (this.rows.length === 0) console.error("nothing of that name");
    return (far && !process.env.QUICK) || this.rows.length === 0 ? 1 : 0;
  }
}
