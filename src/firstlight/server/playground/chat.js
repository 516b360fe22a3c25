// The chat: what is typed and chosen becomes a request, its stream becomes an answer.

import { chat, Failure } from "./api.js";
import { exchange, request, take } from "./conversation.js";
import { announce, byId, show } from "./dom.js";
import { append, exchangeView } from "./exchange_view.js";
import { askForKey } from "./key.js";
import { chosenPictures, setPictures } from "./pictures.js";

const NEAR_END_PX = 160;
const MARGIN_PX = 16;

let exchanges = [];
let running = null; // the AbortController of the answer that streams
let editing = false;
const views = new Map(); // of each exchange, with what it was drawn from

/** Makes the form work. */
export function startChat() {
  byId("composer").onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  byId("message").onkeydown = onKey;
  byId("message").oninput = fitMessage;
  byId("stop").onclick = () => running?.abort();
  byId("cancel-edit").onclick = () => setEditing(false);
  addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
}

/** Asks what an example asks. */
export function ask(text, pictures) {
  if (running) return;
  byId("message").value = text;
  setPictures(pictures);
  submit();
}

function onKey(event) {
  const plain = event.key === "Enter" && !event.shiftKey && !event.isComposing;
  if (!plain || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  submit();
}

function submit() {
  if (running) return;
  const text = byId("message").value.trim();
  const pictures = chosenPictures();
  if (!text && !pictures.length) {
    show(byId("composer-error"), "Write a question or add a picture.");
    byId("message").focus();
    return;
  }
  if (editing) exchanges.pop();
  exchanges.push(exchange(text, pictures));
  setEditing(false);
  answerLast();
}

async function answerLast() {
  const before = exchanges.slice(0, -1);
  const one = exchanges.at(-1);
  const settings = { temperature: byId("temperature").value, maxTokens: byId("max-tokens").value };
  running = new AbortController();
  draw();
  const item = byId("conversation").lastElementChild;
  item.scrollIntoView({ block: "end" });
  announce("Answering");
  try {
    for await (const chunk of chat(request(before, one, settings), running.signal)) {
      one.state = "streaming";
      const following = isNearEnd();
      append(item, take(one, chunk), one.answer);
      if (following) scrollToEnd();
    }
    one.state = "done";
  } catch (error) {
    one.state = error.name === "AbortError" ? "stopped" : "failed";
    one.failure = one.state === "failed" ? asFailure(error) : null;
  }
  running = null;
  finish(one);
}

function finish(one) {
  const following = isNearEnd();
  draw();
  if (following) showEnd(views.get(one).item);
  if (one.state === "failed" && one.failure.status === 401) {
    askForKey(one.failure.message, regenerate);
    return;
  }
  if (one.state === "done") announce(`Answer: ${one.answer || "no text"}`);
  if (one.state === "stopped") announce("Stopped");
  if (document.activeElement === document.body) focusMessage();
}

function regenerate() {
  if (running || !exchanges.length) return;
  const last = exchanges.pop();
  exchanges.push(exchange(last.text, last.pictures));
  setEditing(false, { keep: true });
  answerLast();
}

function edit() {
  const last = exchanges.at(-1);
  byId("message").value = last.text;
  setPictures(last.pictures);
  editing = true;
  byId("editing").hidden = false;
  fitMessage();
  byId("message").focus();
}

function setEditing(on, { keep = false } = {}) {
  editing = on;
  byId("editing").hidden = !on;
  show(byId("composer-error"), null);
  if (keep) return;
  byId("message").value = "";
  setPictures([]);
  fitMessage();
}

function newChat() {
  exchanges = [];
  views.clear();
  setEditing(false);
  draw();
  announce("New chat");
  byId("message").focus();
}

function draw() {
  const last = exchanges.length - 1;
  const act = running ? null : { regenerate, edit, newChat };
  const items = exchanges.map((one, i) => viewOf(one, i === last ? act : null));
  byId("conversation").replaceChildren(...items);
  byId("welcome").hidden = exchanges.length > 0;
  swap(byId(running ? "send" : "stop"), byId(running ? "stop" : "send"));
}

/** Drawn anew only when it changed, so that what was unfolded in older ones stays so. */
function viewOf(one, act) {
  const drawnFrom = `${one.state} ${act !== null}`;
  if (views.get(one)?.drawnFrom !== drawnFrom) {
    views.set(one, { drawnFrom, item: exchangeView(one, act) });
  }
  return views.get(one).item;
}

/** Shows a button in another's place, and hands the focus on. */
function swap(hidden, shown) {
  const focused = document.activeElement === hidden;
  shown.hidden = false;
  if (focused) shown.focus();
  hidden.hidden = true;
}

/** Not on a phone, where the keyboard would cover the answer. */
function focusMessage() {
  if (!matchMedia("(pointer: coarse)").matches) byId("message").focus({ preventScroll: true });
}

function asFailure(error) {
  return error instanceof Failure ? error : new Failure(0, `The page failed: ${error.message}`);
}

function isNearEnd() {
  const page = document.documentElement;
  return page.scrollHeight - page.clientHeight - page.scrollTop < NEAR_END_PX;
}

function scrollToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
}

/** The end of the page, unless the beginning of the exchange would leave the window for it. */
function showEnd(item) {
  const start = scrollY + item.getBoundingClientRect().top - MARGIN_PX;
  scrollTo({ top: Math.max(scrollY, start) });
}

function fitMessage() {
  const field = byId("message");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + field.offsetHeight - field.clientHeight}px`;
}
