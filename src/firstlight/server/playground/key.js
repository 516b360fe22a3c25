// The API key: asked for only when the server wants one, kept only in this tab.

import { byId, show } from "./dom.js";

const NAME = "firstlight.key";

let kept = null; // where the browser allows no storage

/** The key, or null. */
export function storedKey() {
  return kept ?? inStorage((storage) => storage.getItem(NAME)) ?? null;
}

/** Shows the field; a key that was tried is said to be wrong. `retry` runs with a new one. */
export function askForKey(message, retry) {
  const tried = storedKey() !== null;
  kept = null;
  inStorage((storage) => storage.removeItem(NAME));
  show(byId("key-error"), tried ? message : null);
  byId("key-form").hidden = false;
  byId("key").value = "";
  byId("key").focus();
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    const key = byId("key").value.trim();
    if (!key) return;
    inStorage((storage) => storage.setItem(NAME, key));
    if (storedKey() === null) kept = key;
    byId("key-form").hidden = true;
    retry();
  };
}

/** What `use` makes of the storage; undefined where touching it is forbidden. */
function inStorage(use) {
  try {
    return use(sessionStorage);
  } catch {
    return undefined;
  }
}
