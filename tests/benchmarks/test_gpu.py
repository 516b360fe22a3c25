"""The GPU check's own machinery, and all of it with tiny models on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import absent, check, device_tests, record
from benchmarks.gpu.budget import Budget, Part
from benchmarks.gpu.models import SIZES, build
from benchmarks.gpu.replay_share import replays
from benchmarks.gpu.table import table
from benchmarks.gpu.targets import targets

from firstlight.core.reason import Phase
from firstlight.graphs.backends.cuda import gpu_runs, last_run


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


def test_only_files_with_tests_for_a_gpu_are_collected_there(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    for name, text in (("test_a.py", "@pytest.mark.cuda"), ("engine/test_b.py", "import openai")):
        (tmp_path / name).write_text(text)
    assert device_tests.files(tmp_path) == [tmp_path / "test_a.py"]
    assert "tests/graphs/test_cuda_on_device.py" in device_tests.arguments()


BARE = """
import sys
for name in ("llguidance", "httpx2", "httpcore2", "fastapi", "pydantic", "gguf", "openai"):
    sys.modules[name] = None
from benchmarks.gpu.absent import UNUSED
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *rest: None if name in UNUSED else find(name, *rest)
from benchmarks.gpu.absent import stand_in_for_absent
assert stand_in_for_absent() == UNUSED
from benchmarks.gpu import check
check.main(["--help"])
"""


def test_the_check_starts_where_little_is_installed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", BARE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Parts run in this order" in done.stdout


PARTS: dict[str, dict[str, Any]] = {
    "capture": {"engines": {"cuda": {"default_seconds": 16.0}}},
    "prefill, picture": {
        "ttft_ms": {
            "64": {"eager": 1.0, "cuda": 9.0},
            "256": {"eager": 10.0, "cuda": 6.0},
            "512": {"eager": 10.0, "cuda": 7.0},
            "1024": "dropped",
        }
    },
    "decode": {"step_ms": {"1": {"eager": 10.0, "cuda": 6.0}}},
    "coverage": {"share": {"eager": 0.0, "cuda": 0.95}},
}


def test_each_target_is_reached_missed_or_not_measured() -> None:
    found = {target.name.partition(": ")[2]: target for target in targets(PARTS, ("cuda",))}
    verdicts = {name: target.verdict for name, target in found.items()}
    assert verdicts == {
        "first token after a picture, over eager": "reached",
        "decode step, over eager": "missed",
        "replay, over its kernels' own time": "not measured",
        "seconds to capture the default buckets": "missed",
        "share of prefills with a picture by graph": "reached",
    }
    first = found["first token after a picture, over eager"]
    assert str(first).endswith(": 0.7, at most 0.75 (at 512; 256: 0.60)")


def test_a_run_is_put_on_record_as_the_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "verified.json"
    parts = {"build": {"status": "ok"}, "verify": {"status": "failed"}, "x": {"status": "dropped"}}
    about = {"device": "H200, compute capability 9.0", "torch": "2.13", "transformers": "5.2",
             "commit": "abc", "date": "2026-12-01"}  # fmt: skip
    report = {"about": about, "parts": parts, "passed": False}
    for _ in range(2):
        record.append(record.entry(report, targets(PARTS, ("cuda",))), path)
    runs = gpu_runs(path.read_text())
    assert len(runs) == 2
    assert (runs[0].gpu, runs[0].failed, runs[0].dropped) == ("H200", ("verify",), ("x",))
    assert "cuda: decode step, over eager" in runs[0].missed
    assert last_run(runs).startswith("last run on H200 with torch 2.13, transformers 5.2, commit")


def test_old_runs_leave_the_record(tmp_path: Path) -> None:
    path = tmp_path / "verified.json"
    for number in range(record.KEPT + 3):
        record.append({"number": number}, path)
    numbers = [run["number"] for run in json.loads(path.read_text())["runs"]]
    assert numbers == list(range(3, record.KEPT + 3))


class TwiceAsLong:
    """A device whose kernels are busy half of the time."""

    def elapsed(self, call: Any, runs: int) -> float:
        call()
        return 2.0

    def busy(self, call: Any, runs: int) -> float:
        call()
        return 1.0


def test_a_replay_is_held_against_the_time_of_its_kernels(tmp_path: Path) -> None:
    import torch

    from firstlight import LLM

    path = build("quick", tmp_path / "quick", device="cpu", dtype=torch.float32)
    sizes: dict[str, Any] = {"prefill_buckets": (16,), "decode_buckets": (1,)}
    with LLM(path, max_num_seqs=1, proof="off", padding_cost="free", **sizes) as llm:
        buckets = [(Phase.DECODE, 1), (Phase.PREFILL, 16), (Phase.PREFILL, 32)]
        rows = replays({"tape": llm}, buckets, Budget(100), TwiceAsLong())["replay"]
    assert rows["decode 1"] == rows["prefill 16"] == {"tape": 2.0, "tape_ms": [2.0, 1.0]}
    assert rows["prefill 32"] == {}


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
    dropped = [statuses.pop(name) for name in ("tests", "kernels", "replay")]
    assert dropped == ["dropped"] * 3
    assert set(statuses.values()) == {"ok"}
    assert report["parts"]["coverage"]["share"]["tape"] == 1
    assert any("tape: decode step, over eager" in line for line in report["targets"])
    assert table(report) in capsys.readouterr().out
