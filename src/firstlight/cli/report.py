"""What a finished request says about itself: the JSON form and the one line for people."""

from __future__ import annotations

from collections import Counter

from firstlight.cli.session import ChatModel
from firstlight.core.output import Completion
from firstlight.core.reason import Mode, Phase
from firstlight.core.timing import StepRecord


def as_json(completion: Completion, model: ChatModel) -> dict[str, object]:
    """The value that ``firstlight run --json`` prints."""
    usage = completion.usage
    return {
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "finish_reason": completion.finish_reason.value,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "image_tokens": usage.image_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        },
        "timings_ms": {
            "load": round(model.load_seconds * 1e3, 3),
            "capture": round(model.capture_seconds * 1e3, 3),
            **completion.timings.as_ms(),
        },
        "pictures": [picture.as_dict() for picture in completion.timings.pictures],
        "steps": [step.as_dict() for step in completion.timings.steps],
    }


def timing_line(completion: Completion) -> str:
    """One line: time to first token with its parts, speed, and how each phase ran."""
    t = completion.timings
    parts = [("media", t.media_s), ("encoder", t.encode_s), ("prefill", t.prefill_s)]
    shown = ", ".join(f"{name} {_ms(seconds)}" for name, seconds in parts if seconds)
    tokens = completion.usage.completion_tokens
    line = [f"first token {_ms(t.ttft_s)}" + (f" ({shown})" if shown else "")]
    decode_steps = sum(1 for s in t.steps if s.decision.phase is Phase.DECODE)
    each = f", {_ms(t.decode_s / decode_steps)} per further token" if decode_steps else ""
    line.append(f"{tokens} token{'' if tokens == 1 else 's'}{each}")
    line += [_ways(t.steps, phase) for phase in Phase]
    return " · ".join(part for part in line if part)


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms / 1e3:.1f} s" if ms >= 9999.5 else f"{ms:.1f} ms"


def _ways(steps: list[StepRecord], phase: Phase) -> str:
    """``prefill graph 96 (88 live)``, or ``decode eager: no_bucket`` with counts if repeated."""
    ways = Counter(_way(step) for step in steps if step.decision.phase is phase)
    texts = [way if n == 1 else f"{way} x{n}" for way, n in ways.items()]
    return f"{phase.value} {', '.join(texts)}" if texts else ""


def _way(step: StepRecord) -> str:
    decision = step.decision
    if decision.mode is Mode.EAGER:
        return f"eager ({decision.reason.value})"
    live = "" if decision.tokens == decision.bucket else f" ({decision.tokens} live)"
    return f"graph {decision.bucket}{live}"
