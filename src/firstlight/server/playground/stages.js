// Where a request's time went: the stages of a bar, from the `timings` of an answer.

/** All stages in order of time: their names, and what each is. */
export const STAGES = [
  { id: "queue", name: "Queue", what: "waiting, nothing was done for it" },
  { id: "fetch", name: "Fetch", what: "reading or fetching pictures, and their digests" },
  { id: "picture", name: "Decode pictures", what: "from their file format to pixels" },
  { id: "process", name: "Process", what: "the model's image processor" },
  { id: "encode", name: "Encode", what: "the vision tower" },
  { id: "prefill", name: "Prefill", what: "the prompt through the decoder, up to the first token" },
  { id: "decode", name: "Decode", what: "the tokens after the first" },
  { id: "other", name: "Other", what: "between the stages: text, sampling, handing over" },
];

/**
 * The parts of the bar, in order of time; together they are the total. Pictures that were prepared
 * side by side are drawn in the time that all of them took.
 */
export function segments(timings) {
  const { queue_ms, media_ms, encode_ms, prefill_ms, decode_ms_total } = timings;
  const pictures = timings.fetch_ms + timings.decode_ms + timings.process_ms;
  const scale = pictures > media_ms ? media_ms / pictures : 1;
  const before = [
    ["queue", queue_ms],
    ["fetch", timings.fetch_ms * scale],
    ["picture", timings.decode_ms * scale],
    ["process", timings.process_ms * scale],
    ["encode", encode_ms],
    ["prefill", prefill_ms],
  ];
  const after = [["decode", decode_ms_total]];
  return [
    ...closed(before, timings.ttft_ms),
    ...closed(after, timings.total_ms - timings.ttft_ms),
  ]
    .filter(([, ms]) => ms > 0)
    .map(([stage, ms]) => ({ stage, ms }));
}

/** Milliseconds of each stage that took any, in order of STAGES, with its share of the bar. */
export function sums(parts) {
  const total = parts.reduce((sum, part) => sum + part.ms, 0);
  return STAGES.map((stage, index) => {
    const ms = parts.filter((p) => p.stage === stage.id).reduce((sum, p) => sum + p.ms, 0);
    return { ...stage, number: index + 1, ms, share: total ? ms / total : 0 };
  }).filter((stage) => stage.ms > 0);
}

/** Rows that a step computed for nothing. */
export function padding(step) {
  return step.bucket === null ? 0 : step.bucket - step.tokens;
}

function closed(parts, total) {
  const sum = parts.reduce((all, [, ms]) => all + ms, 0);
  return [...parts, ["other", Math.max(total - sum, 0)]];
}
