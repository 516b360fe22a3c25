"""Tables of measured figures say what the files hold, and that a file is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.docs import measured
from tools.docs.fusing import fusing
from tools.docs.memory import memory
from tools.docs.peers import peers
from tools.docs.prefill import prefill
from tools.docs.threads import threads

ABOUT = {
    "cpu": "a CPU",
    "threads": 2,
    "capability": "AVX512",
    "amx": "False",
    "torch": "2.13",
    "transformers": "5.24",
    "commit": "abc",
    "date": "2026-01-02",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    return tmp_path


def row(key: str, ratio: float, reached: bool | None, aim_reached: bool | None) -> dict[str, Any]:
    return {
        "title": f"row {key}",
        "unit": "s",
        "figures": {"openvino-genai": {"median": 123.4}, "firstlight": {"median": 0.012345}},
        "ratios": {"openvino-genai": ratio},
        "against": "openvino-genai",
        "least": 1.0,
        "aim": 0.8,
        "reached": reached,
        "aim_reached": aim_reached,
    }


def results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    started = {"form": "bf16", "versions": {"torch": "2.13", "openvino": "26.4"}}
    missed = {"figure": 6.0, "least": 5.0, "aim": 2.0, "reached": False, "aim_reached": False}
    return {
        "about": ABOUT,
        "rows": rows,
        "verdicts": {"start": missed, "memory": missed | {"figure": None}},
        "groups": {"text": {"engines": {"firstlight": started}}},
    }


def test_figures_that_nobody_took_are_said_to_be_missing(folder: Path) -> None:
    assert peers().startswith("Not measured yet. `scripts/bench peers --json")
    assert fusing().startswith("Not measured yet. `scripts/bench fusing --json")


def test_a_row_names_its_ratio_and_whether_limit_and_aim_were_met(folder: Path) -> None:
    rows = [row("a", 1.2, False, False), row("b", 0.9, True, False), row("c", 0.7, True, True)]
    (folder / "peers.json").write_text(json.dumps(results([*rows, row("d", 2.0, None, None)])))
    head, _, *lines = (line for line in peers().splitlines() if line.startswith("|"))
    assert head == "| row | unit | firstlight | OpenVINO GenAI | ratio | judged |"
    ours = "| s | 0.0123 | 123 |"
    assert lines == [
        f"| row a {ours} 1.20 of OpenVINO GenAI's | **missed** (1x) |",
        f"| row b {ours} 0.90 of OpenVINO GenAI's | reached, not the aim (0.8) |",
        f"| row c {ours} 0.70 of OpenVINO GenAI's | reached, aim too |",
        f"| row d {ours} 2.00 of OpenVINO GenAI's |  |",
    ]


def test_the_machine_each_version_once_and_what_is_measured_once_are_told(folder: Path) -> None:
    (folder / "peers.json").write_text(json.dumps(results([row("a", 1.2, False, False)])))
    said = peers()
    assert said.startswith(
        "a CPU, 2 threads, AVX512; torch 2.13, transformers 5.24, openvino 26.4; commit abc, "
        "2026-01-02."
    )
    assert "ready, bundled model, caches warm: 6 s, **missed** (5 s)." in said
    assert "resident memory" not in said
    assert said.endswith("Weights. text: firstlight bf16.")


def test_parts_stand_in_rows_and_batches_in_columns(folder: Path) -> None:
    made = [
        {"model": "m", "group": group, "batch": batch, "what": what, "ms": 1.5, "ratio": 0.25}
        for group in ("first", "second")
        for batch in ("decode 1", "prefill 128")
        for what in ("plain", "fused")
    ]
    (folder / "fusing.json").write_text(json.dumps({"about": ABOUT, "rows": made}))
    table = [
        "|  | decode 1: ms (ratio) | prefill 128: ms (ratio) |",
        "| --- | --- | --- |",
        "| plain | 1.5 (0.25) | 1.5 (0.25) |",
        "| fused | 1.5 (0.25) | 1.5 (0.25) |",
    ]
    assert fusing().split("\n\n")[1:] == [
        *("m, first:", "\n".join(table)),
        *("m, second:", "\n".join(table)),
    ]


def test_threads_and_neighbours_stand_in_columns(folder: Path) -> None:
    made = [
        {"model": "m", "batch": "decode 1", "threads": n, "beside": beside, "ms": 1.23456}
        for n in (1, 2)
        for beside in ("nothing", "a busy process")
    ]
    (folder / "threads.json").write_text(json.dumps({"about": ABOUT, "rows": made}))
    head, _, line = (line for line in threads().splitlines() if line.startswith("|"))
    assert "| 2 beside a busy process: ms |" in head
    assert line == "| m | decode 1 | 1.23 | 1.23 | 1.23 | 1.23 |"


def test_kinds_of_a_prefills_work_stand_by_time_and_the_whole_stands_last(folder: Path) -> None:
    def row(what: str, ms: float, share: float) -> dict[str, object]:
        return {"what": what, "calls": 1, "ms": ms, "share": share, "gflops": None}

    one = [row("linear 8 x 2 x 2", 6, 0.6), row("gate", 1, 0.1), row("merge splits", 0.01, 0.001)]
    rows = {
        "8": [*one, row("whole prefill", 10, 1)],
        "16": [row("linear 16 x 2 x 2", 9, 0.45), row("linear 16 x 2 x 4", 1, 0.05),
               row("gate", 8, 0.4), row("whole prefill", 20, 1)],
    }  # fmt: skip
    made = {"about": ABOUT, "model": "m, bfloat16", "rows": rows}
    (folder / "prefill.json").write_text(json.dumps(made))
    assert [line for line in prefill().splitlines() if line.startswith("|")] == [
        "| work | 8 tokens: ms | 16 tokens: ms |",
        "| --- | --- | --- |",
        "| linear layers | 6.0 (60.0%) | 10.0 (50.0%) |",
        "| gate | 1.0 (10.0%) | 8.0 (40.0%) |",
        "| all others | 0.0 (0.1%) |  |",
        "| whole prefill | 10.0 (100.0%) | 20.0 (100.0%) |",
    ]


def test_resident_memory_is_told_in_mib_with_the_peak_over_what_is_needed(folder: Path) -> None:
    mib = 1 << 20
    told = {
        "name": "a model",
        "dtype": "bfloat16",
        "quantization": "int4",
        "kv_bytes": 1024 * mib,
        "start": {"weights_bytes": 100 * mib, "buffers_bytes": 20 * mib, "now_bytes": 500 * mib},
        "answers": {"peak_bytes": 600 * mib},
        "full": {"peak_bytes": 1500 * mib},
        "ratio": 0.524,
        "ratio_full": 1.311,
    }
    (folder / "memory.json").write_text(json.dumps({"about": ABOUT, "rows": [told]}))
    assert "| a model, int4 | 100 | 1,024 | 20 | 500 | 600 | 0.52 | 1,500 | 1.31 |" in memory()


def test_without_a_file_the_page_says_how_to_measure_memory(folder: Path) -> None:
    assert "benchmarks.memory --json benchmarks/memory.json" in memory()
