"""The GPU check's own machinery, and all of it with tiny models on a CPU."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import absent, check
from benchmarks.gpu.budget import Budget, Part
from benchmarks.gpu.models import SIZES, build
from benchmarks.gpu.table import table


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taking(clock: Clock, seconds: float, **result: Any) -> Any:
    def run() -> dict[str, Any]:
        clock.now += seconds
        return result

    return run


def test_what_no_longer_fits_is_dropped_and_later_parts_that_fit_run() -> None:
    clock = Clock()
    budget = Budget(100, clock)
    parts = [
        Part("long", 10, taking(clock, 80)),
        Part("too long", 30, taking(clock, 30)),
        Part("short", 5, taking(clock, 5)),
    ]
    assert budget.run(parts)
    assert [r["status"] for r in budget.results.values()] == ["ok", "dropped", "ok"]
    assert budget.results["too long"]["why"].startswith("20 s were left")


def test_an_error_of_one_part_is_its_result_and_the_next_one_runs() -> None:
    budget = Budget(100)

    def fails() -> dict[str, Any]:
        raise ValueError("no such kernel")

    assert not budget.run([Part("a", 1, fails), Part("b", 1, dict)])
    assert budget.results["a"]["why"] == "ValueError: no such kernel"
    assert budget.results["b"]["status"] == "ok"


def test_a_part_that_hangs_is_cut_short_at_the_limit() -> None:
    budget = Budget(0.2)

    def hangs() -> dict[str, Any]:
        time.sleep(30)
        return {}

    began = time.monotonic()
    assert not budget.run([Part("a", 0.1, hangs), Part("b", 0.1, dict)])
    assert time.monotonic() - began < 5
    assert [r["status"] for r in budget.results.values()] == ["cut short", "dropped"]


def test_what_fails_and_what_cannot_be_run_here_are_told_apart() -> None:
    budget = Budget(100)
    parts = [Part("a", 1, lambda: {"dropped": True}), Part("b", 1, lambda: {"ok": False})]
    assert not budget.run(parts)
    assert [r["status"] for r in budget.results.values()] == ["dropped", "failed"]


def test_without_a_gpu_the_check_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert check.main([]) == 2
    assert "--device cpu --quick" in capsys.readouterr().err


def test_a_library_that_is_not_there_fails_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(absent, "UNUSED", ("no_such_library",))
    assert absent.stand_in_for_absent() == ("no_such_library",)
    try:
        import no_such_library  # type: ignore[import-not-found]

        with pytest.raises(ModuleNotFoundError, match="no_such_library is not installed"):
            no_such_library.Matcher()
    finally:
        del sys.modules["no_such_library"]


@pytest.mark.slow
def test_the_large_model_has_the_shape_of_qwen3_vl_2b() -> None:
    import torch
    import transformers
    from benchmarks.gpu.models import _family

    family = _family(SIZES["2b"])
    config = transformers.Qwen3VLConfig(**family.values)
    with torch.device("meta"):
        model = transformers.Qwen3VLForConditionalGeneration(config)
    assert 2.0e9 < sum(p.numel() for p in model.parameters()) < 2.6e9


def test_a_small_checkpoint_is_built_and_answers_to_a_picture(tmp_path: Path) -> None:
    import torch
    from benchmarks.gpu.measure import _picture_ask

    from firstlight import LLM

    path = build("quick", tmp_path / "quick", device="cpu", dtype=torch.float32)
    with LLM(path, eager=True, max_num_seqs=1) as llm:
        answer = _picture_ask(llm, 64)()
    assert 40 < answer.usage.prompt_tokens <= 64


@pytest.mark.slow
def test_all_parts_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    arguments = ["--device", "cpu", "--quick", "--no-tests", "--json", str(path)]
    assert check.main(arguments) == 0
    report = json.loads(path.read_text())
    statuses = {name: part["status"] for name, part in report["parts"].items()}
    assert statuses.pop("tests") == statuses.pop("kernels") == "dropped"
    assert set(statuses.values()) == {"ok"}
    assert report["parts"]["coverage"]["share"]["tape"] == 1
    assert table(report) in capsys.readouterr().out
