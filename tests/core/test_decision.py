"""Decisions and timings in the form in which they are reported."""

from __future__ import annotations

import json

from firstlight.core.reason import Decision, Mode, Phase, Reason
from firstlight.core.timing import StepRecord, Timings


def test_a_bucket_means_a_graph_and_its_padding() -> None:
    replay = Decision(Phase.PREFILL, bucket=64, tokens=50, reason=Reason.CAPTURED)
    eager = Decision(Phase.DECODE, bucket=None, tokens=3, reason=Reason.NO_BUCKET, detail="3 > 2")
    assert (replay.mode, replay.padded) == (Mode.GRAPH, 64)
    assert (eager.mode, eager.padded) == (Mode.EAGER, 3)


def test_a_step_is_reported_as_json() -> None:
    decision = Decision(Phase.DECODE, None, 3, Reason.GRAPHS_OFF, "off")
    assert json.loads(json.dumps(StepRecord(decision, 0.0123456).as_dict())) == {
        "phase": "decode",
        "mode": "eager",
        "bucket": None,
        "tokens": 3,
        "own_tokens": 0,
        "reason": "graphs_off",
        "detail": "off",
        "ms": 12.346,
    }


def test_timings_are_milliseconds_by_stage_and_requests_share_no_steps() -> None:
    timings = Timings(prefill_s=0.5, total_s=1.25)
    assert timings.as_ms() == {
        "media": 0.0,
        "encode": 0.0,
        "prefill": 500.0,
        "decode": 0.0,
        "ttft": 0.0,
        "total": 1250.0,
    }
    timings.steps.append(StepRecord(Decision(Phase.DECODE, 1, 1, Reason.CAPTURED), 0.0))
    assert Timings().steps == []
