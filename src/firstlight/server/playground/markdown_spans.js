// What stands within a line of Markdown as data: text, code, strong, em, del, links.

const MARKS = ["**", "__", "~~", "*", "_"]; // longer ones first
const KINDS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const PROTOCOLS = ["http:", "https:", "mailto:"];
const ADDRESS = /^https?:\/\/[^\s<>`]+/;
const DEEPEST = 8;
const LONGEST_LINK = 2048;

/** Spans with a `kind`; what is not closed stays text, so that a text may still be growing. */
export function spans(text, depth = 0) {
  const found = [];
  const dead = new Set(); // marks that nothing closes from here on
  let plain = "";
  let at = 0;
  const push = (span) => {
    if (plain) found.push({ kind: "text", text: plain });
    plain = "";
    found.push(span);
  };
  while (at < text.length) {
    const taken = depth < DEEPEST ? take(text, at, depth, dead) : null;
    if (!taken) {
      plain += text[at];
      at += 1;
    } else if (taken.span) {
      push(taken.span);
      at = taken.next;
    } else {
      plain += taken.text;
      at = taken.next;
    }
  }
  if (plain) found.push({ kind: "text", text: plain });
  return found;
}

/** What begins at `at`: a span, or text that is none; null for a character of its own. */
function take(text, at, depth, dead) {
  const c = text[at];
  if (c === "\\") return escaped(text, at);
  if (c === "`") return code(text, at, dead);
  if (c === "[" || (c === "!" && text[at + 1] === "[")) return link(text, at, depth, dead);
  if (c === "*" || c === "_" || c === "~") return emphasis(text, at, depth, dead);
  if (c === "h" && !isWord(text[at - 1])) return bareAddress(text, at);
  return null;
}

function escaped(text, at) {
  const next = text[at + 1];
  return next !== undefined && /[!-/:-@[-`{-~]/.test(next) ? { text: next, next: at + 2 } : null;
}

function code(text, at, dead) {
  let end = at;
  while (text[end] === "`") end += 1;
  const fence = text.slice(at, end);
  for (let close = dead.has(fence) ? -1 : text.indexOf(fence, end); close >= 0; ) {
    let behind = close;
    while (text[behind] === "`") behind += 1;
    if (behind - close === fence.length) {
      const inner = text.slice(end, close).replaceAll("\n", " ");
      const padded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim();
      return { span: { kind: "code", text: padded ? inner.slice(1, -1) : inner }, next: behind };
    }
    close = text.indexOf(fence, behind);
  }
  dead.add(fence);
  return { text: fence, next: end };
}

function emphasis(text, at, depth, dead) {
  const mark = MARKS.find((one) => text.startsWith(one, at));
  if (!mark) return null;
  const begin = at + mark.length;
  const opens = begin < text.length && !isSpace(text[begin]) && !(mark[0] === "_" && isWord(text[at - 1]));
  const end = opens && !dead.has(mark) ? closing(text, begin, mark) : -1;
  if (end < 0) {
    if (opens) dead.add(mark);
    return { text: mark, next: begin };
  }
  const inner = spans(text.slice(begin, end), depth + 1);
  return { span: { kind: KINDS[mark], spans: inner }, next: end + mark.length };
}

/** Where a mark closes: not after a blank, not within a longer run, `_` not within a word. */
function closing(text, begin, mark) {
  for (let at = text.indexOf(mark, begin + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    const behind = text[at + mark.length];
    const single = mark.length === 1;
    if (isSpace(text[at - 1]) || text[at - 1] === "\\") continue;
    if (single && (text[at - 1] === mark || behind === mark)) continue;
    if (mark[0] === "_" && isWord(behind)) continue;
    // Of `***` behind a bold that ends with an italic, the last two close the bold.
    return !single && behind === mark[0] ? at + 1 : at;
  }
  return -1;
}

function link(text, at, depth, dead) {
  const begin = at + (text[at] === "!" ? 2 : 1);
  const middle = dead.has("](") ? -1 : text.indexOf("](", begin);
  const end = middle < 0 ? -1 : text.indexOf(")", middle);
  if (end < 0) dead.add("](");
  if (end < 0 || end - begin > LONGEST_LINK) return null;
  const target = text.slice(middle + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
  const href = safe(target);
  const title = text.slice(begin, middle);
  if (!href || title.includes("\n\n") || title.includes("[")) return null;
  return { span: { kind: "link", href, spans: spans(title || target, DEEPEST) }, next: end + 1 };
}

function bareAddress(text, at) {
  const found = text.slice(at, at + LONGEST_LINK).match(ADDRESS);
  if (!found) return null;
  const address = found[0].replace(/[.,;:!?)\]}'"*_]+$/, "");
  const href = safe(address);
  return href && { span: { kind: "link", href, spans: [{ kind: "text", text: address }] }, next: at + address.length };
}

/** The address, if following it can do no more than open a page or a mail; null otherwise. */
function safe(address) {
  try {
    const url = new URL(address);
    return PROTOCOLS.includes(url.protocol) ? url.href : null;
  } catch {
    return null; // relative ones would lead into this server
  }
}

function isSpace(c) {
  return c === undefined || /\s/.test(c);
}

function isWord(c) {
  return c !== undefined && /[\p{L}\p{N}_]/u.test(c);
}
