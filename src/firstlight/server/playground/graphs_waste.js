// What padding costs, and what memory is held for what.

import { figure, key, lines, shareBar } from "./charts.js";
import { el } from "./dom.js";
import { duration, percent, size } from "./format.js";

const HEIGHT = 170;
const KINDS = ["a", "b", "c", "d", "e", "f"];

/** The share of rows that are padding by length of a prompt, and what was measured. */
export function waste(report) {
  const sizes = report.buckets.prefill.map((bucket) => bucket.size);
  return [
    sizes.length ? staircase(sizes) : null,
    ...report.waste.map((one) =>
      el(
        "p",
        { class: "hint" },
        `Over lengths ${one.lengths}: ${percent(one.rows)} of the rows are padding` +
          (one.time === null ? "" : `, ${percent(one.time)} of the time`) +
          `; ${percent(one.eager)} run eager.`,
      ),
    ),
    ...Object.entries(report.padding_cost).map(([phase, measured]) => costs(phase, measured)),
  ].filter(Boolean);
}

/** Memory by kind. */
export function memory(rows) {
  const total = rows.find((row) => row.kind === "all").bytes;
  const kinds = rows
    .filter((row) => row.phase === null && row.kind !== "all" && row.bytes > 0)
    .sort((a, b) => b.bytes - a.bytes)
    .map((row, i) => ({ kind: KINDS[i % KINDS.length], name: `${row.kind} ${size(row.bytes)}`, value: row.bytes }));
  const told = `${size(total)} beside the weights: ${kinds.map(({ name }) => name).join(", ")}`;
  return [el("p", {}, `${size(total)} beside the weights as they were loaded`), shareBar(told, kinds), key(kinds)];
}

function staircase(sizes) {
  const points = sizes.flatMap((bucket, i) => {
    const first = (sizes[i - 1] ?? 0) + 1;
    return [[first, (bucket - first) / bucket], [bucket, 0]];
  });
  const told = "Padding by rows of a batch: highest just above a bucket, none where a batch fills one";
  return figure("Share of padding, by rows of a prefill", (width) =>
    lines(width, HEIGHT, told, [{ kind: "padding", points }], percent, { marks: false }),
  );
}

function costs(phase, measured) {
  const series = [
    { kind: "eager", name: "eager", points: pairs(measured, (row) => row.eager_ms) },
    { kind: "graph", name: "from a graph", points: pairs(measured, (row) => row.replay_ms) },
  ].filter((line) => line.points.length);
  if (!series.length) return null;
  const told = measured.map((row) => `${row.rows} rows: ${timeOf(row.eager_ms)} eager, ${timeOf(row.replay_ms)} from a graph`);
  return figure(
    `Measured time of a ${phase} step, by rows`,
    (width) => lines(width, HEIGHT, told.join("; "), series, duration),
    key(series),
  );
}

function timeOf(ms) {
  return ms === null ? "not measured" : duration(ms);
}

function pairs(measured, value) {
  return measured.filter((row) => value(row) !== null).map((row) => [row.rows, value(row)]);
}
