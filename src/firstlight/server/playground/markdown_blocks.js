// The blocks of a Markdown text as data: paragraphs, headings, lists, code, quotes, tables, rules.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])( +|$)/;
const DELIMITERS = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 12; // quotes and lists within each other; deeper ones stay text

/** Blocks with `kind` and `source`, the text that each was made of. */
export function blocks(text, depth = 0) {
  const lines = text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n");
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = take(lines, at, depth);
    found.push({ ...block, source: lines.slice(at, next).join("\n") });
    at = next;
  }
  return found;
}

function take(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return code(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at) {
  const [, fence, language] = lines[at].match(FENCE);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).join("\n");
  return [{ kind: "code", language, text }, Math.min(end + 1, lines.length)];
}

function closes(line, fence) {
  const text = line.trim();
  return text.length >= fence.length && text === fence[0].repeat(text.length);
}

function heading(line) {
  const [, marks, text] = line.match(HEADING);
  return { kind: "heading", level: marks.length, text: text ?? "" };
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ kind: "quote", blocks: blocks(inner.join("\n"), depth + 1) }, end];
}

function list(lines, at, depth) {
  const [, , mark, number] = lines[at].match(ITEM);
  const kind = mark.at(-1); // a list of another mark is another list
  const items = [];
  let end = at;
  while (end < lines.length) {
    const start = lines[end].match(ITEM);
    if (!start || start[2].at(-1) !== kind || RULE.test(lines[end])) break;
    const [inner, next] = item(lines, end, start[0].length);
    items.push(blocks(inner.join("\n"), depth + 1));
    end = next;
  }
  return [{ kind: "list", ordered: number !== undefined, start: Number(number ?? 1), items }, end];
}

/** The lines of an item without what stands before them, and the line behind it. */
function item(lines, at, indent) {
  const inner = [lines[at].slice(indent)];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const deep = line.length - line.trimStart().length;
    if (!line.trim()) {
      if (!belongs(lines[end + 1], indent)) break;
      inner.push("");
    } else if (deep >= Math.min(indent, 2)) {
      inner.push(line.slice(Math.min(deep, indent)));
    } else if (ITEM.test(line) || opens(line)) {
      break;
    } else {
      inner.push(line); // a paragraph goes on without indentation
    }
  }
  while (end < lines.length && !lines[end].trim() && ITEM.test(lines[end + 1] ?? "")) end += 1;
  return [inner, end];
}

function belongs(line, indent) {
  if (line === undefined || !line.trim()) return false;
  return line.length - line.trimStart().length >= Math.min(indent, 2);
}

function opens(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function isTable(lines, at) {
  const below = lines[at + 1];
  return lines[at].includes("|") && below !== undefined && below.includes("-") && DELIMITERS.test(below) && cells(lines[at]).length === cells(below).length;
}

function table(lines, at) {
  const head = cells(lines[at]);
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => {
    const row = cells(line);
    return head.map((_, i) => row[i] ?? "");
  });
  return [{ kind: "table", head, rows }, end];
}

function cells(line) {
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return text.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !opens(lines[end]) && !isTable(lines, end)) {
    if (depth < DEEPEST && ITEM.test(lines[end])) break;
    end += 1;
  }
  return [{ kind: "paragraph", text: lines.slice(at, end).join("\n").trim() }, end];
}
