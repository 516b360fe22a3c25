// The server: requests with the key, streams of events, errors in words.

import { storedKey } from "./key.js";

/** Why something was not answered. `status` 0: the server was not reached. */
export class Failure extends Error {
  constructor(status, message, { param = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.retryAfter = retryAfter;
  }
}

/** A JSON value. */
export async function get(path) {
  return (await ask(path, {})).json();
}

/** The events of a streamed chat, as they come. Fails if the stream ends before its end. */
export async function* chat(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if ("error" in chunk) throw failure(200, chunk.error);
    yield chunk;
  }
  throw new Failure(0, "The connection ended before the answer did.");
}

/** The data of server-sent events. */
export async function* events(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        if (frame.startsWith("data: ")) yield frame.slice("data: ".length);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function ask(path, options) {
  const key = storedKey();
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The server cannot be reached. Is it still running?");
  }
  if (response.ok) return response;
  throw await failureOf(response);
}

async function failureOf(response) {
  const retryAfter = response.headers.get("Retry-After");
  try {
    return failure(response.status, (await response.json()).error, retryAfter);
  } catch {
    return new Failure(response.status, `The server answered with status ${response.status}.`);
  }
}

function failure(status, error, retryAfter = null) {
  return new Failure(status, error.message, { param: error.param, retryAfter });
}
