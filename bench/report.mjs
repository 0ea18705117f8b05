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

function spread(values) {
  return `${number(median(values))} (${number(Math.min(...values))}-${number(Math.max(...values))})`;
}

// How far a target was reached: 1 and more is reached.
function reached({ ours, ratio, target }) {
  if (!target) return 1;
  if (target.ratio) return ratio / target.ratio;
  if (target.atLeast) return median(ours) / target.atLeast;
  return median(ours) > 0 ? target.atMost / median(ours) : 1;
}

function targetText(target) {
  if (!target) return "";
  if (target.ratio) return `ratio >= ${target.ratio}`;
  return target.atLeast ? `>= ${target.atLeast}` : `<= ${target.atMost}`;
}

export class Report {
  rows = [];

  // { name, what, unit, ours, peer, against, target, notes }: samples; round i of the peer belongs
  // to round i of ours.
  add(row) {
    const ratio = row.peer && median(row.ours.map((value, i) => value / row.peer[i]));
    const all = { ...row, ratio };
    all.verdict = !row.target ? "" : reached(all) >= 1 ? "ok" : reached(all) >= 0.5 ? "missed" : "MISSED BY FAR";
    if (this.rows.length === 0) this.#print("what", "unit", "ours: median (min-max)", "peer", "ratio", "target", "verdict");
    this.rows.push(all);
    this.#print(row.what, row.unit, spread(row.ours), row.peer ? spread(row.peer) : "", ratio?.toFixed(2) ?? "", targetText(row.target), all.verdict);
    if (row.against) console.error(`${" ".repeat(46)}against ${row.against}`);
  }

  #print(what, unit, ours, peer, ratio, target, verdict) {
    console.error(
      `${what.padEnd(43)} ${unit.padEnd(5)} ${ours.padEnd(32)} ${peer.padEnd(32)} ${ratio.padStart(6)}  ${target.padEnd(12)} ${verdict}`.trimEnd(),
    );
  }

  // As bench/core prints them with --json.
  json() {
    const samples = (values) => ({ median: median(values), min: Math.min(...values), max: Math.max(...values), rounds: values.length });
    const one = ({ name, what, unit, ours, peer, against, ratio, target, verdict, notes }) => {
      const row = { what, unit, ours: samples(ours) };
      if (peer) Object.assign(row, { baseline: samples(peer), against, ratio });
      if (target) Object.assign(row, { target: targetText(target), verdict });
      if (notes) row.notes = notes;
      return [name, row];
    };
    return Object.fromEntries(this.rows.map(one));
  }

  // `part`: only some groups were measured; the other rows of the file stay.
  save(file, part) {
    const before = part && existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
    writeFileSync(file, `${JSON.stringify({ ...before, ...this.json() }, null, 1)}\n`);
  }

  // Exit status.
  end() {
    const far = this.rows.some((row) => row.verdict === "MISSED BY FAR");
    if (far) console.error("a target was missed by more than a factor of two");
    if (this.rows.length === 0) console.error("nothing of that name");
    return far || this.rows.length === 0 ? 1 : 0;
  }
}
