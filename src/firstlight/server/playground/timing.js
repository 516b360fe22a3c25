// What is under an answer: where its time went, how its steps ran, what was cached.

import { el } from "./dom.js";
import { count, duration, percent, words } from "./format.js";
import { padding, segments, sums } from "./stages.js";
import { table } from "./tables.js";

const SHOWN_STEPS = 4;

/** The panel of an answer, from its `timings` and `usage`. */
export function timingPanel(timings, usage) {
  const parts = segments(timings);
  return el(
    "div",
    { class: "timing", role: "group", "aria-label": "Timing of this answer" },
    el("p", { class: "sentence" }, ...sentence(timings, usage)),
    bar(parts, timings),
    legend(parts),
    steps(timings),
    pictures(timings.media),
  );
}

/** A badge that says in words and by its shape whether a step ran from a graph. */
export function badge(mode) {
  return el("span", { class: `badge ${mode}` }, mode === "graph" ? "graph" : "eager");
}

function sentence(timings, usage) {
  const prompt = usage.prompt_tokens_details;
  return [
    el("strong", {}, duration(timings.ttft_ms)),
    ` to the first token, ${duration(timings.total_ms)} in all. `,
    `${count(usage.prompt_tokens, "prompt token")}: ${prompt.image_tokens.toLocaleString("en")} of pictures, `,
    `${prompt.cached_tokens.toLocaleString("en")} cached. ${count(usage.completion_tokens, "token")} answered.`,
  ];
}

function bar(parts, timings) {
  const stages = sums(parts);
  const told = stages.map((stage) => `${stage.name} ${duration(stage.ms)}`).join(", ");
  const drawn = el("div", { class: "bar", role: "img", "aria-label": `Time by stage: ${told}` });
  for (const part of parts) {
    const { number } = stages.find((stage) => stage.id === part.stage);
    const piece = el("span", { class: `piece ${part.stage}` }, el("span", {}, number));
    piece.style.flexGrow = part.ms;
    drawn.append(piece);
  }
  const share = timings.ttft_ms / timings.total_ms;
  const mark = el("span", { class: share > 0.5 ? "mark left" : "mark" }, "first token");
  mark.style.insetInlineStart = `${share * 100}%`;
  return el("div", { class: "time" }, drawn, el("div", { class: "marks", "aria-hidden": "true" }, mark));
}

function legend(parts) {
  const items = sums(parts).map((stage) =>
    el(
      "li",
      { title: stage.what },
      el("span", { class: `swatch ${stage.id}`, "aria-hidden": "true" }, stage.number),
      el("span", {}, stage.name),
      el("span", { class: "figure" }, duration(stage.ms)),
      el("span", { class: "share" }, percent(stage.share)),
    ),
  );
  return el("ul", { class: "legend", "aria-label": "Stages" }, ...items);
}

function steps(timings) {
  const rows = timings.prefill_steps.map(prefillStep);
  const hidden = rows.splice(SHOWN_STEPS);
  rows.push(...timings.decode_steps.map(decodeSteps));
  const list = el("ul", { class: "steps", "aria-label": "Steps" }, ...rows);
  if (!hidden.length) return list;
  const more = count(hidden.length, "more prefill step");
  return el("div", {}, list, fold(more, el("ul", { class: "steps" }, ...hidden)));
}

function prefillStep(step) {
  const others = step.tokens - step.own_tokens;
  const facts = [
    step.bucket === null ? "no bucket" : `bucket ${step.bucket}`,
    `${padding(step)} padding`,
    words(step.reason),
    duration(step.ms),
  ];
  const mixed = others ? `, beside ${others} of other requests` : "";
  return el(
    "li",
    {},
    badge(step.mode),
    el("span", { class: "what" }, `Prefill of ${count(step.own_tokens, "token")}${mixed}`),
    el("span", { class: "why" }, facts.join(" · ")),
    step.mode === "eager" ? el("span", { class: "why" }, step.detail) : null,
  );
}

function decodeSteps(way) {
  const bucket = way.bucket === null ? "no bucket" : `bucket ${way.bucket}`;
  return el(
    "li",
    {},
    badge(way.mode),
    el("span", { class: "what" }, count(way.steps, "decode step")),
    el("span", { class: "why" }, `${bucket} · ${words(way.reason)}`),
  );
}

function pictures(media) {
  if (!media.length) return null;
  const rows = media.map((one, index) => [
    index + 1,
    one.size.join(" × "),
    { figure: one.rows.toLocaleString("en") },
    one.artifact,
    one.encoder,
  ]);
  const names = ["Picture", "Pixels", "Tokens", "Processor cache", "Encoder cache"];
  return fold(count(media.length, "picture"), table("Pictures of this question", names, rows));
}

function fold(title, ...content) {
  return el("details", {}, el("summary", {}, title), ...content);
}
