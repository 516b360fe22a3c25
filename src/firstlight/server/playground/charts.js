// Pictures of numbers, drawn as SVG in the width that there is.

import { el, svg } from "./dom.js";

const LEFT = 56;
const RIGHT = 8;
const LABEL_PX = 34;
const HATCHED = ["b", "c", "d", "e", "f"]; // so that no part is told by its colour alone

/** A figure whose picture is drawn again when its width changes. `draw(width)` makes an SVG. */
export function figure(caption, draw, ...below) {
  const canvas = el("div", { class: "canvas" });
  const shown = el("figure", {}, el("figcaption", {}, caption), canvas, ...below);
  let drawnAt = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== drawnAt) {
      drawnAt = width;
      canvas.replaceChildren(draw(width));
    }
  }).observe(canvas);
  return shown;
}

/** An SVG that is told as one picture with a name. */
export function picture(width, height, told, ...children) {
  const attributes = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told };
  return svg("svg", attributes, ...children);
}

/**
 * Columns, stacked. `columns` are { label, parts: [{ kind, value }] }; `text` writes a value of the
 * scale.
 */
export function columns(width, height, told, items, text, nice = niceTop) {
  const sums = items.map((item) => item.parts.reduce((all, part) => all + part.value, 0));
  const top = nice(Math.max(...sums, 0));
  const slot = (width - LEFT - RIGHT) / items.length;
  const base = height - 22;
  const high = base - 10;
  const drawn = items.flatMap((item, i) => {
    let y = base;
    return item.parts.filter((part) => part.value > 0).flatMap((part) => {
      const h = (part.value / top) * high;
      y -= h;
      const x = LEFT + i * slot + slot * 0.14;
      const place = { x, y, width: slot * 0.72, height: h };
      return [
        svg("rect", { class: `fill ${part.kind}`, ...place }),
        HATCHED.includes(part.kind) ? svg("rect", { fill: `url(#hatch-${part.kind})`, ...place }) : null,
      ];
    });
  });
  return picture(width, height, told, ...scale(width, base, high, top, text), ...drawn, ...labels(items, slot, height));
}

/** Lines through points. `lines` are { kind, points: [[x, y]] }, both axes from 0. */
export function lines(width, height, told, series, text, { marks = true } = {}) {
  const all = series.flatMap((line) => line.points);
  const right = Math.max(...all.map(([x]) => x), 1);
  const top = niceTop(Math.max(...all.map(([, y]) => y), 0));
  const base = height - 22;
  const high = base - 10;
  const at = ([x, y]) => [LEFT + (x / right) * (width - LEFT - RIGHT - 8), base - (y / top) * high];
  const drawn = series.flatMap((line) => {
    const points = line.points.map(at);
    const path = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const each = marks ? points.map((point) => mark(line.kind, point)) : [];
    return [svg("path", { class: `line ${line.kind}`, d: path }), ...each];
  });
  const step = Math.max(niceTop(right / 5), 1);
  const ends = Array.from({ length: Math.floor(right / step) + 1 }, (_, i) => {
    const [x] = at([i * step, 0]);
    return svg("text", { class: "tick", x, y: height - 6, "text-anchor": "middle" }, (i * step).toLocaleString("en"));
  });
  return picture(width, height, told, ...scale(width, base, high, top, text), ...drawn, ...ends);
}

/** A bar of parts of a whole, as wide as there is room. `parts` are { kind, value }. */
export function shareBar(told, parts) {
  const bar = el("div", { class: "bar thin", role: "img", "aria-label": told });
  for (const part of parts.filter((one) => one.value > 0)) {
    const piece = el("span", { class: `piece ${part.kind}` });
    piece.style.flexGrow = part.value;
    bar.append(piece);
  }
  return bar;
}

/** The names of what is drawn. `items` are { kind, name }. */
export function key(items) {
  const rows = items.map(({ kind, name }) =>
    el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name),
  );
  return el("ul", { class: "key-of-chart" }, ...rows);
}

/** The next 1, 2 or 5 times a power of ten. */
export function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/** The next even number of that kind, for what is counted. */
export function niceCount(value) {
  return Math.max(niceTop(value), 2) === 5 ? 6 : Math.max(niceTop(value), 2);
}

/** The next 1, 2 or 5 times a power of ten of a power of 1024. */
export function niceBytes(value) {
  const unit = 1024 ** Math.floor(Math.log(Math.max(value, 1)) / Math.log(1024));
  const top = niceTop(value / unit);
  return top > 1000 ? 1024 * unit : top * unit;
}

function scale(width, base, high, top, text) {
  return [0, 0.5, 1].flatMap((share) => {
    const y = base - share * high;
    return [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, text(top * share)),
    ];
  });
}

function labels(items, slot, height) {
  const every = Math.ceil(LABEL_PX / slot);
  return items.map((item, i) =>
    (items.length - 1 - i) % every
      ? null
      : svg("text", { class: "tick", x: LEFT + (i + 0.5) * slot, y: height - 6, "text-anchor": "middle" }, item.label),
  );
}

function mark(kind, [x, y]) {
  if (kind === "eager") {
    return svg("rect", { class: `dot ${kind}`, x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  }
  return svg("circle", { class: `dot ${kind}`, cx: x, cy: y, r: 4 });
}
