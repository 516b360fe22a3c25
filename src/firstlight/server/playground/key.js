// The API key: asked for only when the server wants one, kept only in this tab.

import { byId, show } from "./dom.js";

const NAME = "firstlight.key";

/** The key, or null. */
export function storedKey() {
  return sessionStorage.getItem(NAME);
}

/** Shows the field; a key that was tried is said to be wrong. `retry` runs with a new one. */
export function askForKey(message, retry) {
  const tried = storedKey() !== null;
  sessionStorage.removeItem(NAME);
  show(byId("key-error"), tried ? message : null);
  byId("key-form").hidden = false;
  byId("key").value = "";
  byId("key").focus();
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    const key = byId("key").value.trim();
    if (!key) return;
    sessionStorage.setItem(NAME, key);
    byId("key-form").hidden = true;
    retry();
  };
}
