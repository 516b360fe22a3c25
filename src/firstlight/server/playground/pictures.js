// Pictures on their way in: picked, pasted or dropped, kept as data URLs.

import { announce, byId, el } from "./dom.js";

let chosen = [];
let refuse = () => {};

/** Listens for pictures. `onRefused` is told what was no picture. */
export function takePictures(onRefused) {
  refuse = onRefused;
  byId("pick").hidden = false;
  byId("pick").onclick = () => byId("files").click();
  byId("files").onchange = () => {
    add(byId("files").files);
    byId("files").value = "";
  };
  document.addEventListener("paste", (event) => {
    const files = event.clipboardData?.files ?? [];
    // What office programs copy is text with a picture of it.
    if (!files.length || event.clipboardData.types.includes("text/plain")) return;
    event.preventDefault();
    add(files);
  });
  listenForDrops();
}

/** Replaces what is chosen. */
export function setPictures(pictures) {
  chosen = [...pictures];
  draw();
}

/** What is chosen: a list of { name, url }. */
export function chosenPictures() {
  return [...chosen];
}

async function add(files) {
  const all = [...files];
  const pictures = all.filter((file) => file.type.startsWith("image/"));
  const others = all.filter((file) => !pictures.includes(file)).map((file) => file.name);
  refuse(others.length ? `Not a picture: ${others.join(", ")}` : null);
  const read = await Promise.all(pictures.map(readPicture));
  chosen.push(...read);
  draw();
  if (read.length) announce(`Added ${read.map((picture) => picture.name).join(", ")}`);
  byId("message").focus();
}

function readPicture(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name: file.name || "pasted picture", url: reader.result });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function draw() {
  const items = chosen.map((picture, index) =>
    el(
      "li",
      {},
      el("img", { src: picture.url, alt: picture.name }),
      el("button", { type: "button", class: "remove", "aria-label": `Remove ${picture.name}`, onclick: () => remove(index) }, "×"),
    ),
  );
  byId("attached").replaceChildren(...items);
  byId("attached").hidden = !items.length;
}

function remove(index) {
  const [gone] = chosen.splice(index, 1);
  draw();
  announce(`Removed ${gone.name}`);
  const left = byId("attached").querySelectorAll("button");
  (left[Math.min(index, left.length - 1)] ?? byId("message")).focus();
}

function listenForDrops() {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let inside = 0;
  const over = (change) => {
    inside = change === null ? 0 : Math.max(inside + change, 0);
    byId("drop").classList.toggle("on", inside > 0);
  };
  addEventListener("dragenter", (event) => hasFiles(event) && over(1));
  addEventListener("dragleave", (event) => hasFiles(event) && over(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(null);
    add(event.dataTransfer.files);
  });
}
