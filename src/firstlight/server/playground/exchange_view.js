// One exchange on the page.

import { announce, el } from "./dom.js";
import { counts } from "./conversation.js";
import { showMarkdown } from "./markdown.js";
import { timingPanel } from "./timing.js";

const FINISHED = { length: "The answer ended at the limit of tokens." };

/** Draws an exchange; `act` has `regenerate`, `edit` and `newChat` for the last one, null for others. */
export function exchangeView(one, act) {
  const item = el("li", { class: "exchange" }, question(one), answer(one));
  if (one.state !== "waiting" && one.state !== "streaming") {
    item.append(after(one, act));
  }
  return item;
}

/** Shows of a running answer what came of it; `whole` is the answer so far. */
export function append(item, { answer, thoughts }, whole) {
  if (thoughts) {
    item.querySelector(".thoughts").hidden = false;
    item.querySelector(".thoughts .text").append(thoughts);
  }
  if (answer) showMarkdown(item.querySelector(".answer > .text"), whole);
}

function question(one) {
  const pictures = one.pictures.map(({ name, url }) => el("img", { src: url, alt: name }));
  return el(
    "article",
    { class: "question", "aria-label": "You" },
    pictures.length ? el("div", { class: "pictures" }, ...pictures) : null,
    one.text ? el("p", { class: "text" }, one.text) : null,
  );
}

function answer(one) {
  const running = one.state === "waiting" || one.state === "streaming";
  return el(
    "article",
    { class: running ? "answer running" : "answer", "aria-label": "Answer", "aria-busy": running ? "true" : null },
    el(
      "details",
      { class: "thoughts", open: running, hidden: !one.thoughts },
      el("summary", {}, "Thoughts"),
      el("p", { class: "text" }, one.thoughts),
    ),
    written(one.answer, !running && !one.answer),
  );
}

function written(text, hidden) {
  const element = el("div", { class: "text markdown", hidden });
  showMarkdown(element, text);
  return element;
}

function after(one, act) {
  const notes = [FINISHED[one.finish]];
  if (one.state === "stopped") notes.push("You stopped this answer; timings come with whole answers only.");
  if (one.state === "done" && !one.answer) notes.push("The model ended its answer at once, without text.");
  if (!counts(one)) notes.push("This exchange is not sent along with later questions.");
  return el(
    "div",
    { class: "after" },
    one.failure ? failureBox(one.failure) : null,
    ...notes.filter(Boolean).map((note) => el("p", { class: "hint" }, note)),
    actions(one, act),
    one.timings ? timingPanel(one.timings, one.usage) : null,
  );
}

function failureBox(failure) {
  const title = failure.status >= 400 && failure.status < 500 ? "Refused" : "Not answered";
  return el(
    "div",
    { class: "error", role: "alert" },
    el("strong", {}, failure.status >= 400 ? `${title} (${failure.status})` : title),
    el("p", {}, failure.message),
    failure.param ? el("p", {}, "Field: ", el("code", {}, failure.param)) : null,
    failure.retryAfter ? el("p", {}, `Try again in ${failure.retryAfter} s.`) : null,
  );
}

function actions(one, act) {
  const button = (text, onclick) => el("button", { type: "button", onclick }, text);
  const list = [];
  if (one.answer) list.push(button("Copy", () => copy(one.answer)));
  if (act) {
    list.push(button(one.state === "done" ? "Regenerate" : "Try again", act.regenerate));
    list.push(button("Edit question", act.edit));
    list.push(button("New chat", act.newChat));
  }
  return list.length ? el("div", { class: "actions" }, ...list) : null;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
  } catch {
    announce(copyOldWay(text) ? "Copied" : "This browser does not let the page copy");
  }
}

/** Where a page that came over plain http has no clipboard. */
function copyOldWay(text) {
  const focused = document.activeElement;
  const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return copied;
}
