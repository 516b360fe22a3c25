// How batches ran since the start, and why some did not run from a graph.

import { key, shareBar } from "./charts.js";
import { el } from "./dom.js";
import { count, percent, words } from "./format.js";
import { table } from "./tables.js";

/** Bars of both phases, and the reasons. */
export function coverage(phases) {
  const bars = Object.entries(phases).map(([phase, one]) => el("div", {}, ...phaseBars(phase, one)));
  return [
    el("div", { class: "coverage" }, ...bars),
    key([
      { kind: "graph", name: "from a graph" },
      { kind: "eager", name: "eager" },
      { kind: "padding", name: "padding" },
    ]),
    reasons(phases),
  ];
}

function phaseBars(phase, one) {
  if (!one.batches) {
    return [el("p", {}, el("strong", {}, `${name(phase)}: `), "no batch since the start")];
  }
  const eager = one.batches - one.graph;
  const rows = one.live_rows + one.padding_rows;
  const batches = `${one.graph} of ${count(one.batches, "batch", "batches")} from graphs (${percent(one.share)})`;
  const padded = rows
    ? `${count(one.padding_rows, "row")} of padding in ${count(rows, "row")} (${percent(one.padding_rows / rows)})`
    : "no rows";
  return [
    el("p", {}, el("strong", {}, `${name(phase)}: `), batches),
    shareBar(`${phase}: ${batches}`, [{ kind: "graph", value: one.graph }, { kind: "eager", value: eager }]),
    el("p", {}, padded),
    shareBar(`${phase}: ${padded}`, [{ kind: "graph", value: one.live_rows }, { kind: "padding", value: one.padding_rows }]),
  ];
}

function reasons(phases) {
  const rows = Object.entries(phases).flatMap(([phase, one]) =>
    one.reasons.map((why) => [
      words(why.reason),
      phase,
      { figure: why.batches.toLocaleString("en") },
      why.meaning,
    ]),
  );
  if (!rows.length) return el("p", { class: "hint" }, "No batch ran eager since the start.");
  return table("Why batches ran eager", ["Why eager", "Phase", "Batches", "What it means"], rows);
}

function name(phase) {
  return phase[0].toUpperCase() + phase.slice(1);
}
