// The buckets of one phase: uses, seconds and bytes of each, and its verdict.

import { columns, figure, key, niceBytes, niceCount, niceTop } from "./charts.js";
import { el } from "./dom.js";
import { count, duration, number, size, words } from "./format.js";
import { table } from "./tables.js";

const HEIGHT = 150;
const SIGNS = { ready: "✓", waiting: "…", failed: "✕", quarantined: "!" };
const KINDS = ["a", "b", "c", "d", "e", "f"];

/** Figures and a table. */
export function bucketFigures(phase, buckets, coverage, eager) {
  if (!buckets.length) return [el("p", {}, "This phase has no graphs: everything runs eager.")];
  return [
    el("p", {}, verdicts(buckets)),
    eagerNow(eager),
    uses(buckets, coverage.replays),
    parts("Seconds to capture each", buckets, "seconds_by_part", (s) => duration(s * 1000), niceTop),
    parts("Bytes that each holds", buckets, "bytes_by_kind", size, niceBytes),
    el("details", {}, el("summary", {}, "All buckets as a table"), allBuckets(phase, buckets, coverage.replays)),
  ].filter(Boolean);
}

function verdicts(buckets) {
  const states = [...new Set(buckets.map((bucket) => bucket.state))];
  const told = states.map((state) => {
    const n = buckets.filter((bucket) => bucket.state === state).length;
    return `${SIGNS[state] ?? "?"} ${n} ${state}`;
  });
  const proofs = [...new Set(buckets.map((bucket) => bucket.proof))];
  return `${count(buckets.length, "bucket")} up to ${count(buckets.at(-1).size, "row")}: ${told.join(", ")}. Proof: ${proofs.join("; ")}.`;
}

function eagerNow(eager) {
  if (!eager.length) return null;
  const items = eager.map((one) => el("li", {}, `${one.when}: ${words(one.reason)}, ${one.detail}.`));
  const title = `What would run eager now: ${count(eager.length, "range of lengths", "ranges of lengths")}`;
  return el("details", {}, el("summary", {}, title), el("ul", { class: "list" }, ...items));
}

function uses(buckets, replays) {
  const items = buckets.map((bucket) => ({
    label: bucket.size,
    parts: [{ kind: "graph", value: replays[bucket.size] ?? 0 }],
  }));
  const used = buckets.filter((bucket) => bucket.size in replays);
  const told = used.length
    ? used.map((bucket) => `bucket ${bucket.size} ${count(replays[bucket.size], "time")}`).join(", ")
    : "none was used since the start";
  return figure("Replays since the start, by bucket", (width) =>
    columns(width, HEIGHT, `Replays by bucket: ${told}`, items, number, niceCount),
  );
}

/** Stacked columns of a field that is { part: value }. */
function parts(caption, buckets, field, text, nice) {
  const kinds = namesOf(buckets, field).map((name, i) => ({ kind: KINDS[i % KINDS.length], name }));
  const items = buckets.map((bucket) => ({
    label: bucket.size,
    parts: kinds.map(({ kind, name }) => ({ kind, value: bucket[field][name] ?? 0 })),
  }));
  const sum = (bucket) => Object.values(bucket[field]).reduce((all, value) => all + value, 0);
  const most = buckets.reduce((a, b) => (sum(b) > sum(a) ? b : a));
  const all = buckets.reduce((total, bucket) => total + sum(bucket), 0);
  const told = `${text(all)} in all; the most is ${text(sum(most))}, of bucket ${most.size}`;
  return figure(
    `${caption}: ${told}`,
    (width) => columns(width, HEIGHT, `${caption}: ${told}`, items, text, nice),
    key(kinds),
  );
}

function allBuckets(phase, buckets, replays) {
  const parts = namesOf(buckets, "seconds_by_part");
  const kinds = namesOf(buckets, "bytes_by_kind");
  const units = [...parts.map((name) => `${name}, s`), ...kinds];
  const names = ["Rows", "State", "Replays", ...units, "Operations", "Proof", "Why"];
  const rows = buckets.map((bucket) => [
    bucket.size,
    `${SIGNS[bucket.state] ?? "?"} ${bucket.state}`,
    { figure: replays[bucket.size] ?? 0 },
    ...parts.map((name) => ({ figure: number(bucket.seconds_by_part[name] ?? 0) })),
    ...kinds.map((name) => ({ figure: size(bucket.bytes_by_kind[name] ?? 0) })),
    { figure: bucket.ops },
    bucket.proof,
    bucket.why,
  ]);
  return table(`Buckets of ${phase} as a table`, names, rows);
}

function namesOf(buckets, field) {
  return [...new Set(buckets.flatMap((bucket) => Object.keys(bucket[field])))];
}
