"""The stages of an answer as they become spans: names, times, attributes. Imports no library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from firstlight.core.output import Completion
from firstlight.core.reason import Mode
from firstlight.core.timing import PictureTiming, StepRecord, Timings
from firstlight.server.timings import prefill_steps
from firstlight.server.tracing import AnswerFacts

Value = str | int | float | bool | Sequence[str] | Sequence[int]
SUMMED: Final = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "firstlight.image_tokens",
    "firstlight.cached_tokens",
)
"""Attributes of a request that are sums over its prompts."""
_MOST_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """One span: readings of the engine's clock, and what lies within it."""

    name: str
    began: float
    ended: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    inner: Sequence[Stage] = ()


def answer_attributes(facts: AnswerFacts) -> dict[str, Value]:
    """Of the request itself, by OpenTelemetry's names for generative models where it has some."""
    found: dict[str, Value] = {
        "gen_ai.provider.name": "firstlight",
        "gen_ai.response.model": facts.model,
        "gen_ai.usage.input_tokens": facts.prompt_tokens,
        "gen_ai.usage.output_tokens": facts.completion_tokens,
        "firstlight.image_tokens": facts.image_tokens,
    }
    if facts.completions:
        found["firstlight.cached_tokens"] = facts.completions[0].usage.cached_tokens
        reasons = [completion.finish_reason.value for completion in facts.completions]
        found["gen_ai.response.finish_reasons"] = reasons
    if facts.waits.ttft_s is not None:
        found["gen_ai.response.time_to_first_chunk"] = facts.waits.ttft_s
    return found


def stages_of(facts: AnswerFacts) -> Iterator[Stage]:
    """As far as the request got; a stage in which it broke off ends where the request did."""
    waits = facts.waits
    first = facts.completions[0] if facts.completions else None
    end = facts.now if waits.done is None else waits.done
    turn = end if waits.permitted is None else waits.permitted
    yield Stage("queue", waits.received, turn, {"firstlight.for": "turn"})
    if waits.permitted is None:
        return
    prepared = end if waits.admitted is None else waits.admitted
    yield Stage("prepare", waits.permitted, prepared, inner=_media(waits.permitted, first))
    if waits.admitted is None:
        return
    # With pages at once, the step began before the thread that admits it had its turn again.
    started = end if waits.started is None else max(waits.started, waits.admitted)
    yield Stage("queue", waits.admitted, started, {"firstlight.for": "pages"})
    if waits.started is None:
        return
    token = end if waits.first_token is None else max(waits.first_token, started)
    yield Stage("prefill", started, token, _prefill(first), _encode(started, token, first))
    if waits.first_token is not None:
        yield Stage("decode", token, max(end, token), _decode(first))


def _media(began: float, completion: Completion | None) -> list[Stage]:
    """Fetch, decode and process of all pictures.

    How long each took is measured, not when it began: one after the other they fill the time that
    all took by the clock, in proportion to their seconds, which stand beside.
    """
    if completion is None or not completion.timings.pictures:
        return []
    timings = completion.timings
    sums = {
        "media.fetch": sum(picture.read_s for picture in timings.pictures),
        "media.decode": sum(picture.decode_s for picture in timings.pictures),
        "media.process": sum(picture.process_s for picture in timings.pictures),
    }
    total = sum(sums.values())
    share = timings.media_s / max(total, timings.media_s, 1e-9)
    inner = []
    at = began
    for name, seconds in sums.items():
        if seconds:
            inner.append(Stage(name, at, at + seconds * share, {"firstlight.seconds": seconds}))
            at += seconds * share
    return [Stage("media", began, began + timings.media_s, _pictures(timings.pictures), inner)]


def _pictures(pictures: Sequence[PictureTiming]) -> dict[str, Value]:
    return {
        "firstlight.pictures": len(pictures),
        "firstlight.picture_rows": [picture.rows for picture in pictures],
        "firstlight.processor_cache": [picture.artifact.value for picture in pictures],
        "firstlight.encoder_cache": [picture.encoder.value for picture in pictures],
    }


def _encode(began: float, ended: float, completion: Completion | None) -> list[Stage]:
    """The vision tower's calls, which open the steps that need them; drawn as one, at the start."""
    seconds = 0.0 if completion is None else completion.timings.encode_s
    if not seconds:
        return []
    return [Stage("encode", began, min(began + seconds, ended), {"firstlight.seconds": seconds})]


def _prefill(completion: Completion | None) -> dict[str, Value]:
    if completion is None:
        return {}
    steps = _split(completion)[0][:_MOST_STEPS]
    return {
        "firstlight.modes": [step.decision.mode.value for step in steps],
        "firstlight.reasons": [step.decision.reason.value for step in steps],
        "firstlight.rows": [step.decision.tokens for step in steps],
        "firstlight.padded_rows": [step.decision.padded for step in steps],
    }


def _decode(completion: Completion | None) -> dict[str, Value]:
    if completion is None:
        return {}
    steps = _split(completion)[1]
    eager = [step for step in steps if step.decision.mode is Mode.EAGER]
    return {
        "firstlight.steps": len(steps),
        "firstlight.eager_steps": len(eager),
        "firstlight.reasons": sorted({step.decision.reason.value for step in steps}),
    }


def _split(completion: Completion) -> tuple[list[StepRecord], list[StepRecord]]:
    """Steps of the prompt, and those after it."""
    timings: Timings = completion.timings
    usage = completion.usage
    prefill = prefill_steps(timings.steps, usage.prompt_tokens - usage.cached_tokens)
    return prefill, timings.steps[len(prefill) :]
