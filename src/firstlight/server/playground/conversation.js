// A conversation as data: exchanges of a question and an answer.

/** A new exchange: nothing is answered yet. */
export function exchange(text, pictures) {
  return { text, pictures, answer: "", thoughts: "", state: "waiting", failure: null, timings: null, usage: null, finish: null };
}

/** Whether an exchange is sent again with later questions. */
export function counts(past) {
  return (past.state === "done" || past.state === "stopped") && past.answer !== "";
}

/** The messages of a request that asks `last` after the exchanges before it. */
export function messages(before, last) {
  const past = before.filter(counts).flatMap((one) => [
    { role: "user", content: content(one) },
    { role: "assistant", content: one.answer },
  ]);
  return [...past, { role: "user", content: content(last) }];
}

/** The request; an empty field leaves its setting to the server. */
export function request(before, last, { temperature, maxTokens }) {
  const body = {
    messages: messages(before, last),
    stream: true,
    stream_options: { include_usage: true },
    timings: true,
  };
  if (temperature !== "") body.temperature = Number(temperature);
  if (maxTokens !== "") body.max_tokens = Number(maxTokens);
  return body;
}

/** Takes a chunk of the stream into an exchange; what it added to the answer and to the thoughts. */
export function take(one, chunk) {
  const [choice] = chunk.choices;
  const added = { answer: "", thoughts: "" };
  if (choice) {
    added.answer = ("content" in choice.delta && choice.delta.content) || "";
    added.thoughts = ("reasoning_content" in choice.delta && choice.delta.reasoning_content) || "";
    one.answer += added.answer;
    one.thoughts += added.thoughts;
    one.finish = choice.finish_reason ?? one.finish;
  } else {
    one.usage = chunk.usage;
    one.timings = chunk.timings;
  }
  return added;
}

function content(one) {
  if (!one.pictures.length) return one.text;
  const parts = one.pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return one.text ? [...parts, { type: "text", text: one.text }] : parts;
}
