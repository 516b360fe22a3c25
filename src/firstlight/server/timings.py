"""Where a request's time went, as its answer says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from firstlight.core.output import Completion
from firstlight.core.timing import StepRecord
from firstlight.engine.aio import Waits

HEADER = "x-firstlight-timings"
"""A request with this header, and any value but ``0``, gets timings in its answer."""


def wants_timings(asked: bool | None, headers: Mapping[str, str]) -> bool:
    """Whether the answer is to have timings."""
    return bool(asked) or headers.get(HEADER, "0") != "0"


def timings_of(waits: Waits, completion: Completion) -> dict[str, Any]:
    """The ``timings`` of an answer, in milliseconds; of several choices, the first one's."""
    t = completion.timings
    usage = completion.usage
    prefill = prefill_steps(t.steps, usage.prompt_tokens - usage.cached_tokens)
    decode = t.steps[len(prefill) :]
    return {
        "queue_ms": _ms(waits.queue_s),
        "media_ms": _ms(t.media_s),
        "fetch_ms": _ms(sum(p.read_s for p in t.pictures)),
        "decode_ms": _ms(sum(p.decode_s for p in t.pictures)),
        "process_ms": _ms(sum(p.process_s for p in t.pictures)),
        "encode_ms": _ms(t.encode_s),
        "prefill_ms": _ms(t.prefill_s),
        "ttft_ms": _ms(waits.ttft_s or 0.0),
        "decode_ms_total": _ms(t.decode_s),
        "total_ms": _ms(waits.total_s or waits.queue_s + t.total_s),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "media": [picture.as_dict() for picture in t.pictures],
        "prefill_steps": [step.as_dict() for step in prefill],
        "decode_steps": _ways(decode),
    }


def server_timing(waits: Waits, completion: Completion | None = None) -> str:
    """The value of a ``Server-Timing`` header, milliseconds by stage as far as it has got."""
    stages = {"queue": waits.queue_s, "ttft": waits.ttft_s}
    if completion is not None:
        t = completion.timings
        stages |= {
            "media": t.media_s,
            "fetch": sum(p.read_s for p in t.pictures),
            "img-decode": sum(p.decode_s for p in t.pictures),
            "process": sum(p.process_s for p in t.pictures),
            "encode": t.encode_s,
            "prefill": t.prefill_s,
            "decode": t.decode_s,
            "total": waits.queue_s + t.total_s,
        }
    shown = [f"{name};dur={_ms(s):g}" for name, s in stages.items() if s is not None]
    return ", ".join(shown)


def prefill_steps(steps: list[StepRecord], tokens: int) -> list[StepRecord]:
    """The leading steps, those that computed the ``tokens`` of the prompt."""
    found: list[StepRecord] = []
    for step in steps:
        if tokens <= 0:
            break
        found.append(step)
        tokens -= step.tokens
    return found


def _ways(steps: list[StepRecord]) -> list[dict[str, Any]]:
    """How often decode steps ran which way."""
    ways = Counter(
        (s.decision.mode.value, s.decision.bucket, s.decision.reason.value) for s in steps
    )
    return [
        {"mode": mode, "bucket": bucket, "reason": reason, "steps": n}
        for (mode, bucket, reason), n in ways.items()
    ]


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
