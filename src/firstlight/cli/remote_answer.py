"""Reads the events of a streamed chat, and what the server says of its own time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.core.timing import StepRecord, Timings
from firstlight.errors import RequestError


class RemoteAnswer:
    """One answer, as far as it has come.

    Thoughts that the server tells apart stand between ``<think>`` and ``</think>``, as a model
    here writes them.

    Args:
        clock: seconds, monotonic; for servers that do not say their own times.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._text: list[str] = []
        self._thinking = False
        self._finish: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """The text of the events of a body, as it comes.

        Raises:
            RequestError: an event is an error, is none, or the stream ends before the answer does.
        """
        for line in lines:
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                break
            for text in self._take(_event(data)):
                if self._first is None:
                    self._first = self._clock()
                self._text.append(text)
                yield text
        if self._finish is None:
            raise RequestError("the server ended the answer before it was complete")

    def completion(self) -> Completion:
        """The whole answer. Token ids are not sent; steps are known of a firstlight server only."""
        details = self._usage.get("prompt_tokens_details") or {}
        finish = FinishReason.LENGTH if self._finish == "length" else FinishReason.STOP
        return Completion(
            text="".join(self._text),
            token_ids=(),
            finish_reason=finish,
            usage=Usage(
                prompt_tokens=int(self._usage.get("prompt_tokens") or 0),
                completion_tokens=int(self._usage.get("completion_tokens") or 0),
                image_tokens=int(details.get("image_tokens") or 0),
                cached_tokens=int(details.get("cached_tokens") or 0),
            ),
            timings=self._times(),
        )

    def _take(self, event: Mapping[str, Any]) -> Iterator[str]:
        if event.get("error") is not None:
            said = event["error"]
            raise RequestError(str(said.get("message") if isinstance(said, Mapping) else said))
        self._usage = event.get("usage") or self._usage
        self._timings = event.get("timings") or self._timings
        for choice in event.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if thought:
                yield thought if self._thinking else f"<think>{thought}"
                self._thinking = True
            if delta.get("content"):
                yield f"</think>{delta['content']}" if self._thinking else delta["content"]
                self._thinking = False

    def _times(self) -> Timings:
        """The server's own times, or what was seen from here."""
        now, t = self._clock(), self._timings
        if "ttft_ms" not in t:
            first = now if self._first is None else self._first
            return Timings(ttft_s=first - self._began, total_s=now - self._began)
        steps = [_step(step, Phase.PREFILL) for step in t.get("prefill_steps", ())]
        for way in t.get("decode_steps", ()):
            steps += [_step(way, Phase.DECODE)] * int(way.get("steps", 1))
        return Timings(
            media_s=_seconds(t, "media_ms"),
            encode_s=_seconds(t, "encode_ms"),
            prefill_s=_seconds(t, "prefill_ms"),
            decode_s=_seconds(t, "decode_ms_total"),
            ttft_s=_seconds(t, "ttft_ms"),
            total_s=_seconds(t, "total_ms"),
            steps=steps,
        )


def _event(data: str) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise RequestError(f"the server sent an event that is no JSON object: {data:.80}")
    return event


def _step(step: Mapping[str, Any], phase: Phase) -> StepRecord:
    bucket = step.get("bucket")
    tokens = step.get("tokens", bucket or 1)
    decision = Decision(phase, bucket, tokens, Reason(step["reason"]), step.get("detail", ""))
    return StepRecord(decision, float(step.get("ms", 0.0)) / 1e3, step.get("own_tokens", 0))


def _seconds(timings: Mapping[str, Any], name: str) -> float:
    return float(timings.get(name) or 0.0) / 1e3
