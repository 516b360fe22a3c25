// The page: views, the model's facts, examples.

import { get } from "./api.js";
import { ask, startChat } from "./chat.js";
import { byId, el, show } from "./dom.js";
import { showGraphs } from "./graphs.js";
import { askForKey } from "./key.js";
import { takePictures } from "./pictures.js";

const VIEWS = ["chat", "graphs"];

startChat();
addEventListener("hashchange", () => showView({ moved: true }));
byId("refresh").onclick = showGraphs;
byId("skip").onclick = skip;
begin();

async function begin() {
  try {
    await showModel();
  } catch (error) {
    if (error.status === 401) askForKey(error.message, begin);
    else show(byId("composer-error"), error.message);
    return;
  }
  showView({ moved: false });
}

async function showModel() {
  const [model] = (await get("v1/models")).data;
  byId("model-facts").textContent = `${model.id} · context ${model.max_model_len.toLocaleString("en")}`;
  if (!model.modalities.includes("image")) return;
  show(byId("invitation"), "Ask about a picture");
  byId("picture-help").hidden = false;
  takePictures((refused) => show(byId("composer-error"), refused));
  await showExamples();
}

async function showExamples() {
  const examples = await get("playground/examples.json");
  const items = examples.map(({ file, question }) => {
    const url = `playground/examples/${file}`;
    const button = el(
      "button",
      { type: "button", onclick: () => askExample(url, file, question) },
      el("img", { src: url, alt: "", width: 96, height: 96 }),
      el("span", {}, question),
    );
    return el("li", {}, button);
  });
  byId("examples").replaceChildren(...items);
  byId("examples").hidden = !items.length;
}

async function askExample(url, name, question) {
  const blob = await (await fetch(url)).blob();
  const reader = new FileReader();
  reader.onload = () => ask(question, [{ name, url: reader.result }]);
  reader.readAsDataURL(blob);
}

/** To what the view is for. */
function skip(event) {
  event.preventDefault();
  byId(byId("chat-view").hidden ? "graphs-title" : "message").focus();
}

function showView({ moved }) {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "chat";
  for (const name of VIEWS) {
    byId(`${name}-view`).hidden = name !== view;
    byId(`to-${name}`).toggleAttribute("aria-current", false);
  }
  byId(`to-${view}`).setAttribute("aria-current", "page");
  if (view === "graphs") {
    showGraphs();
    if (moved) byId("graphs-title").focus();
  }
}
