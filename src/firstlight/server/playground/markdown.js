// Answers that are written in Markdown, as elements. No string is ever parsed as HTML.

import { el } from "./dom.js";
import { blocks } from "./markdown_blocks.js";
import { spans } from "./markdown_spans.js";

const FIRST_HEADING = 3; // below the headings of the page itself
const drawn = new WeakMap(); // of each element, the sources of the blocks that it shows

/** Shows a text in an element. Blocks that did not change keep their elements, selection included. */
export function showMarkdown(element, text) {
  const wanted = blocks(text);
  const before = drawn.get(element) ?? [];
  let same = 0;
  while (same < before.length && same < wanted.length && before[same] === wanted[same].source) same += 1;
  while (element.childNodes.length > same) element.lastChild.remove();
  element.append(...wanted.slice(same).map(block));
  drawn.set(element, wanted.map((one) => one.source));
}

function block(one) {
  switch (one.kind) {
    case "code":
      return el("pre", { tabindex: "0", "aria-label": one.language ? `Code, ${one.language}` : "Code" }, el("code", {}, one.text));
    case "heading":
      return el(`h${Math.min(one.level + FIRST_HEADING - 1, 6)}`, {}, ...inline(one.text));
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...one.blocks.map(block));
    case "list":
      return el(one.ordered ? "ol" : "ul", { start: one.ordered && one.start !== 1 ? one.start : null }, ...one.items.map(item));
    case "table":
      return table(one);
    default:
      return el("p", {}, ...inline(one.text));
  }
}

/** An item of one paragraph alone needs no paragraph around it. */
function item(inner) {
  const [first, ...rest] = inner;
  if (!first) return el("li");
  const head = first.kind === "paragraph" ? inline(first.text) : [block(first)];
  return el("li", {}, ...head, ...rest.map(block));
}

function table(one) {
  const cell = (tag) => (text) => el(tag, tag === "th" ? { scope: "col" } : {}, ...inline(text));
  const head = el("thead", {}, el("tr", {}, ...one.head.map(cell("th"))));
  const body = el("tbody", {}, ...one.rows.map((row) => el("tr", {}, ...row.map(cell("td")))));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {}, head, body));
}

function inline(text) {
  return spans(text).map(span);
}

function span(one) {
  switch (one.kind) {
    case "text":
      return one.text;
    case "code":
      return el("code", {}, one.text);
    case "link":
      return el("a", { href: one.href, rel: "noopener noreferrer", target: "_blank" }, ...one.spans.map(span));
    default:
      return el(one.kind, {}, ...one.spans.map(span)); // strong, em, del
  }
}
