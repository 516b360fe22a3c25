"""What is wrong in a report, of whatever part of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.fake_model import REPORT

from firstlight.cli.faults import faults
from firstlight.cli.tables import print_report


def graph(size: int, state: str, why: str = "") -> dict[str, Any]:
    return {"size": size, "state": state, "why": why, "bytes": 0, "seconds": 0.0}


def test_a_healthy_report_has_none() -> None:
    assert faults(REPORT) == []


@pytest.mark.parametrize("state", ["failed", "quarantined"])
def test_each_graph_that_is_out_of_use_is_one_with_its_reason(state: str) -> None:
    buckets = {"prefill": [graph(16, "ready"), graph(64, state, "row 3 differs")], "decode": []}
    assert faults({"buckets": buckets}) == [
        {"where": "prefill graph of 64 rows", "state": state, "why": "row 3 differs"}
    ]


@pytest.mark.parametrize("state", ["waiting", "unproven"])
def test_a_graph_that_is_still_to_come_is_none(state: str) -> None:
    assert faults({"buckets": {"prefill": [graph(64, state)], "decode": []}}) == []


def test_an_input_that_nothing_depends_on_is_one() -> None:
    (found,) = faults({"unread_inputs": ["mixed: segment deepstack.1 is not read"]})
    assert found["where"] == "input contract"
    assert "deepstack.1" in found["why"]


def test_where_nothing_was_proven_no_input_is_blamed() -> None:
    assert faults({"unread_inputs": None}) == []


def test_they_stand_above_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    buckets = {"prefill": [graph(64, "quarantined", "row 3 differs")], "decode": []}
    print_report(REPORT | {"buckets": buckets})
    shown = capsys.readouterr().out
    assert shown.index("row 3 differs") < shown.index("FakeForConditionalGeneration")
