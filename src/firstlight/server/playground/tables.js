// Tables that scroll by themselves where a window is narrow.

import { el } from "./dom.js";

/** A table. Each row begins with its header; a cell is a text, or { figure } for a number. */
export function table(label, names, rows) {
  const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map(([first, ...rest]) =>
    el("tr", {}, el("th", { scope: "row" }, first), ...rest.map(cell)),
  );
  const whole = el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": label }, whole);
}

function cell(value) {
  const isFigure = value !== null && typeof value === "object";
  return isFigure ? el("td", { class: "figure" }, value.figure) : el("td", {}, value);
}
