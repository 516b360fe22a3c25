// The view of /v1/graphs.

import { get } from "./api.js";
import { bucketFigures } from "./graphs_buckets.js";
import { coverage } from "./graphs_coverage.js";
import { memory, waste } from "./graphs_waste.js";
import { announce, byId, el, show } from "./dom.js";
import { askForKey } from "./key.js";

const PHASES = ["prefill", "decode"];

/** Fetches and draws it. */
export async function showGraphs() {
  show(byId("graphs-error"), null);
  try {
    const report = await get("v1/graphs");
    byId("graphs").replaceChildren(...sections(report));
    announce("Graphs are up to date");
  } catch (error) {
    if (error.status === 401) askForKey(error.message, showGraphs);
    else show(byId("graphs-error"), error.message);
  }
}

function sections(report) {
  return [
    el("p", { class: "lead" }, lead(report)),
    unread(report.unread_inputs),
    section("Coverage", coverage(report.coverage)),
    ...PHASES.map((phase) =>
      section(`Buckets of ${phase}`, bucketFigures(phase, report.buckets[phase], report.coverage[phase], report.eager[phase])),
    ),
    section("Padding", waste(report)),
    section("Memory", memory(report.bytes)),
  ].filter(Boolean);
}

function section(title, content) {
  return el("section", { class: "sheet" }, el("h3", {}, title), ...content);
}

function lead(report) {
  const parts = report.segments.map((segment) => `${segment.name} (${segment.width})`);
  return (
    `${report.model} (${report.architecture}) on the ${report.backend} backend. ` +
    `A decoder row is ${report.input_embeds_hidden_size} wide: ${parts.join(" + ")}.`
  );
}

function unread(inputs) {
  if (inputs === null) return el("p", { class: "hint" }, "Nothing was proven, so inputs that nobody reads are not known.");
  if (!inputs.length) return null;
  return el("div", { class: "error" }, el("p", {}, "Inputs on which no output depends:"), el("ul", {}, ...inputs.map((text) => el("li", {}, text))));
}
