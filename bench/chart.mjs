// chart.mjs PAGE SVG - draws the tables of PAGE, as bench/docs.mjs has put them there: how far ahead or
// behind, beside whom, and what was aimed at; how near to the limits; and throughput by how many are in
// flight. It reads the page and not the numbers of the run, so that the two never disagree, also when
// only some parts were measured again.
//
// Plain SVG 1.1 with a style for each of the two schemes of colours; no scripts, no fonts of its own.
import { readFileSync, writeFileSync } from "node:fs";

const [page, file] = process.argv.slice(2);
const text = readFileSync(page, "utf8");

// ---- what the page says ------------------------------------------------------------------------

const cellsOf = (line) => line.slice(1, -1).split("|").map((cell) => cell.trim());

function linesOf(name) {
  const inside = text.split(`<!-- ${name}: begin -->`)[1]?.split(`<!-- ${name}: end -->`)[0] ?? "";
  return inside.split("\n").filter((line) => line.startsWith("| ")).map(cellsOf);
}

// More a second is better; of anything else, less is.
function rowOf([what, , peer, ratio, target, verdict]) {
  const better = what.endsWith(", per second") ? Number(ratio) : 1 / Number(ratio);
  return {
    label: what.replace(/, (per second|ms|s|bytes|KiB|rows)$/, ""),
    against: peer.slice(peer.indexOf(": ") + 2),
    better,
    aimed: Number(target.match(/ratio >= ([\d.]+)/)?.[1]) || undefined,
    missed: /missed/i.test(verdict),
    met: verdict === "ok",
  };
}

const rowsOf = (name) => linesOf(name).filter((cells) => cells.length === 6 && Number(cells[3]) > 0).map(rowOf);

// What the core is compared with to see where time goes is no peer.
const isPeer = ({ against }) => !/fdatasync|bare hash map/.test(against);

function seriesOf() {
  const [head, ...lines] = linesOf("growth").filter((cells) => cells[0].startsWith("claim + publish per second") || / in flight$/.test(cells[0]));
  if (!head) return [];
  const value = (cell) => Number(cell.split(", ")[0].replaceAll(",", ""));
  return head.slice(1).map((name, i) => ({
    name,
    points: lines.map((cells) => [Number(cells[0].replace(/[^\d]/g, "")), value(cells[i + 1])]),
  }));
}

// ---- drawing -----------------------------------------------------------------------------------

const WIDTH = 920;
const LEFT = 400;
const RIGHT = WIDTH - 110;
const ROW = 36;
const out = [];
let y = 0;

const escaped = (value) => `${value}`.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const say = (x, at, kind, value, anchor = "start") => out.push(`<text class="${kind}" x="${x}" y="${at}" text-anchor="${anchor}">${escaped(value)}</text>`);
const rule = (x1, y1, x2, y2, kind) => out.push(`<line class="${kind}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`);
const shortened = (value, most) => (value.length > most ? `${value.slice(0, most - 1).trimEnd()}…` : value);
const round = (value) => Math.round(value * 10) / 10;

// Logarithms, so that twice as fast and half as fast are as long.
const scale = (low, high, from, to) => (value) => {
  const part = Math.log(Math.min(Math.max(value, low), high) / low) / Math.log(high / low);
  return round(from + part * (to - from));
};

const times = (value) => `${value >= 100 ? Math.round(value).toLocaleString("en-US") : value >= 10 ? Math.round(value) : Number(value.toPrecision(2))}×`;

function heading(title, note) {
  y += 34;
  say(20, y, "title", title);
  y += 18;
  say(20, y, "note", note);
  y += 26;
}

const across = scale(0.2, 100, LEFT, RIGHT);

function axis(ticks, height) {
  for (const tick of ticks) {
    say(across(tick), y, "tick", tick === 1 ? "1" : `${tick}×`, "middle");
    rule(across(tick), y + 6, across(tick), y + 8 + height, tick === 1 ? "one" : "grid");
  }
  y += 8;
}

function bar({ label, against, better, aimed, missed }, kind) {
  const [one, end] = [across(1), across(better)];
  const middle = y + ROW / 2;
  out.push(`<g><title>${escaped(`${label}: ${times(better)} ${against}`)}</title>`);
  say(LEFT - 12, middle - 3, "label", shortened(label, 58), "end");
  say(LEFT - 12, middle + 11, "note", shortened(against, 62), "end");
  const width = Math.max(2, Math.abs(end - one));
  out.push(`<rect class="${kind}" x="${Math.min(one, end)}" y="${middle - 8}" width="${round(width)}" height="14" rx="2"/>`);
  if (aimed) rule(across(aimed), middle - 12, across(aimed), middle + 10, "aimed");
  const beside = Math.max(end, one, aimed ? across(aimed) : 0) + 6;
  say(beside, middle + 4, missed ? "value missed" : "value", aimed && missed ? `${times(better)}, not ${aimed}` : times(better));
  out.push("</g>");
  y += ROW;
}

// `kind` of a row: what colour it has.
function bars(title, note, rows, kind) {
  if (rows.length === 0) return;
  heading(title, note);
  axis([0.25, 0.5, 1, 2, 5, 10, 20, 50, 100], rows.length * ROW);
  for (const row of rows) bar(row, kind(row));
  y += 6;
}

function lines(series) {
  if (series.length === 0) return;
  heading("Claim + publish per second, by how many are in flight", "One process, through the library. Both axes are logarithmic.");
  const height = 240;
  const all = series.flatMap(({ points }) => points);
  const [low, high] = [10 ** Math.floor(Math.log10(Math.min(...all.map((p) => p[1])))), 10 ** Math.ceil(Math.log10(Math.max(...all.map((p) => p[1]))))];
  const x = scale(1, Math.max(...all.map((p) => p[0])), 110, WIDTH - 170);
  const up = scale(low, high, y + height, y);
  for (let tick = low; tick <= high; tick *= 10) {
    say(100, up(tick) + 4, "tick", tick.toLocaleString("en-US"), "end");
    rule(110, up(tick), WIDTH - 170, up(tick), "grid");
  }
  for (const [n] of series[0].points) say(x(n), y + height + 18, "tick", n.toLocaleString("en-US"), "middle");
  let above = Infinity;
  for (const [i, { name, points }] of [...series].sort((a, b) => a.points.at(-1)[1] - b.points.at(-1)[1]).entries()) {
    out.push(`<polyline class="line s${i}" points="${points.map(([n, value]) => `${x(n)},${up(value)}`).join(" ")}"/>`);
    for (const [n, value] of points) out.push(`<circle class="dot s${i}" cx="${x(n)}" cy="${up(value)}" r="3"/>`);
    above = Math.min(up(points.at(-1)[1]) + 4, above - 15); // names do not lie on each other
    say(WIDTH - 160, above, `name s${i}`, name);
  }
  y += height + 30;
}

const colours = (c) => `
.back{fill:${c.back}}.title,.label,.value{fill:${c.text}}.note,.tick{fill:${c.soft}}
.grid{stroke:${c.grid}}.one{stroke:${c.soft}}.aimed{stroke:${c.text}}
.ahead{fill:${c.ahead}}.behind,.missed{fill:${c.behind}}.near{fill:${c.near}}
.line.s0,.dot.s0{stroke:${c.near}}.line.s1,.dot.s1{stroke:${c.ahead}}.line.s2,.dot.s2{stroke:${c.behind}}.line.s3,.dot.s3{stroke:${c.third}}
.name.s0{fill:${c.near}}.name.s1{fill:${c.ahead}}.name.s2{fill:${c.behind}}.name.s3{fill:${c.third}}.dot{fill:${c.back}}`;

const light = { back: "#ffffff", text: "#1f2328", soft: "#59636e", grid: "#d8dee4", ahead: "#1a7f5a", behind: "#bc4c00", near: "#3367b5", third: "#8250df" };
const dark = { back: "#0d1117", text: "#e6edf3", soft: "#9198a1", grid: "#30363d", ahead: "#3fb88a", behind: "#f0883e", near: "#6ea8fe", third: "#b392f0" };

const style = `
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.title{font-size:16px;font-weight:600}.label{font-size:12px}.note,.tick{font-size:10.5px}.value{font-size:12px;font-weight:600}.name{font-size:12px;font-weight:600}
.aimed{stroke-width:2}.one{stroke-width:1.5}.line{fill:none;stroke-width:2}.dot{stroke-width:2}${colours(light)}
@media (prefers-color-scheme:dark){${colours(dark)}
}`;

const peers = ["peers", "fleet", "doors", "runs", "core"].flatMap(rowsOf).filter(isPeer);
bars("How many times better than what people use today", "To the right of 1 we are ahead, to the left behind; the upright mark is the target. Peers and what was compared: docs/performance.md.",
  peers, ({ better, missed, met }) => (missed || (better < 1 && !met) ? "behind" : "ahead"));
bars("How near to the limit that binds", "1 is the limit itself. More than 1: one flush, or one command, carries many claims.", rowsOf("limits"), () => "near");
lines(seriesOf());

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 20}" width="${WIDTH}" height="${y + 20}" role="img" aria-label="Ratios of once to its peers and limits, from docs/performance.md">`;
writeFileSync(file, `${head}\n<style>${style}\n</style>\n<rect class="back" width="100%" height="100%"/>\n${out.join("\n")}\n</svg>\n`);
