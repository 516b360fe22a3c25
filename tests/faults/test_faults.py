"""Each fault is caught by exactly the checks that the documentation names, in its words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from tests.faults import adapters, sides
from tests.faults.fault import Fault
from tests.faults.graph_rig import examined
from tests.faults.recorded import RECORDED, recorded
from tests.faults.table import FAULTS, UNCAUGHT
from tests.graphs.sided import Parts

_NUMBER = re.compile(r"\d[\d.e+-]*|\b(inf|nan)\b")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_caught_by_the_levels_that_the_table_names(fault: Fault) -> None:
    caught = fault.certain(fault.examine())
    assert set(caught) == set(fault.caught_by), caught
    for level, words in fault.caught_by.items():
        assert any(words in message for message in caught[level]), caught[level]
    # Digits move with source lines and rounding; the words are what the documentation promises.
    shown = {level.value: message for level, message in fault.shown(caught).items()}
    assert _words(shown) == _words(recorded()[fault.id])


def _words(shown: Mapping[str, str]) -> dict[str, str]:
    return {level: _NUMBER.sub("#", message) for level, message in shown.items()}


@pytest.mark.parametrize("fault", UNCAUGHT, ids=lambda fault: fault.id)
def test_what_is_said_to_be_caught_by_nothing_is_caught_by_nothing(fault: Fault) -> None:
    assert fault.examine() == {}


def test_the_unmutated_decoder_passes_every_level_without_a_finding() -> None:
    assert examined(lambda parts: None)() == {}


@pytest.mark.parametrize("prefix_lm", [False, True])
def test_the_unmutated_decoder_of_two_sides_passes_every_level(prefix_lm: bool) -> None:
    assert sides.examined(lambda: Parts(prefix_lm=prefix_lm))() == {}


def test_an_unmutated_adapter_and_the_real_merge_pass_without_a_finding() -> None:
    assert adapters.healthy() == {}


def test_the_recorded_messages_are_those_of_the_faults_in_the_table() -> None:
    assert set(json.loads(RECORDED.read_text())) == {fault.id for fault in FAULTS}


def test_no_two_faults_share_a_name() -> None:
    names = [fault.id for fault in (*FAULTS, *UNCAUGHT)]
    assert len(set(names)) == len(names)
