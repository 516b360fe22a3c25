"""The parts of ``scripts/gpu-check``, a table last, and JSON."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import models, record
from benchmarks.gpu.budget import Budget, Part
from benchmarks.gpu.kernels import kernels
from benchmarks.gpu.measure import (
    MODES,
    Engines,
    captures,
    coverage,
    decodes,
    encoders,
    open_encoders,
    open_engines,
    prefills,
)
from benchmarks.gpu.replay_share import Cuda, replays
from benchmarks.gpu.table import table
from benchmarks.gpu.targets import targets
from benchmarks.machine import ROOT, about
from firstlight import LLM
from firstlight.core.reason import Phase

_TESTS_NEED = ("pytest", "hypothesis")
_REPLAYS = ((Phase.DECODE, 1), (Phase.DECODE, 16), (Phase.PREFILL, 256), (Phase.PREFILL, 1024))
_FEW = (64, 200), (1, 4)
_MANY = (256, 512, 1024, 1500, 64, 128, 2048, 4000), (1, 8, 64, 2, 4, 16, 32)
"""Tokens of prompts, and requests side by side."""
ORDER = """\
Parts run in this order, and the last ones are dropped when the time is short: build, tests, verify,
sanitizer, capture, prefill with a picture, decode, replay, coverage, prefill of text, encoder,
kernels.
Within a sweep the sizes that the targets speak of come first."""


def main(arguments: list[str] | None = None, absent: Sequence[str] = ()) -> int:
    """Returns 0 if nothing failed; what was dropped fails nothing.

    Args:
        absent: libraries that firstlight was imported without.
    """
    options = _options(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA device; --device cpu --quick runs the same parts on a "
              "CPU with tiny models", file=sys.stderr)  # fmt: skip
        return 2
    budget = Budget(options.seconds)
    with tempfile.TemporaryDirectory(prefix="firstlight-gpu-") as folder:
        check = Check(options, budget, Path(folder))
        passed = budget.run(check.parts())
        check.close()
    where = about() | {"device": _device(options.device)}
    report = {
        "about": where | ({"commit": options.commit} if options.commit else {}),
        "quick": options.quick,
        "absent": list(absent),
        "seconds": round(options.seconds - budget.left, 1),
        "passed": passed,
        "parts": budget.results,
    }
    judged = targets(budget.results, check.captured_modes)
    report["targets"] = [str(target) for target in judged]
    if options.device == "cuda" and not options.quick:
        record.append(record.entry(report, judged), options.record)
        print(f"on record: {options.record}; commit it, and run scripts/docs")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    print(f"written: {options.json}")
    return 0 if passed else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__, epilog=ORDER)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models and few rounds")
    parser.add_argument("--seconds", type=float, default=450, help="for everything; default 450")
    parser.add_argument("--no-tests", action="store_true", help="leave the test suite out")
    parser.add_argument("--commit", help="of what is checked, where git cannot tell")
    parser.add_argument("--record", type=Path, default=record.RECORD, help="gets the verdict of a "
                        "whole run on a GPU; default: the package's own")  # fmt: skip
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "gpu-check.json")
    return parser.parse_args(arguments)


def _device(device: str) -> str:
    if device == "cpu":
        return "cpu"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"


class Check:
    """What the parts share: checkpoints and open engines.

    Args:
        folder: takes the checkpoints.
    """

    def __init__(self, options: argparse.Namespace, budget: Budget, folder: Path) -> None:
        self._budget = budget
        self._device = str(options.device)
        self._quick = bool(options.quick)
        self._tests = not options.no_tests
        self._folder = folder
        self._small, self._large = ("quick", "quick") if self._quick else ("mid", "2b")
        self._dtype = "float32" if self._device == "cpu" else "bfloat16"
        self._largest = 256 if self._quick else 4096
        self._rounds = 2 if self._quick else 7
        self._engines: Engines | None = None

    def parts(self) -> list[Part]:
        """In order of importance, each with the seconds below which it is not begun."""
        sizes, requests = _FEW if self._quick else _MANY
        return [
            Part("build", 20, self._build),
            Part("tests", 30, self._run_tests),
            Part("verify", 20, self._verify),
            Part("sanitizer", 20, self._sanitize),
            Part("capture", 20, lambda: captures(self._open())),
            Part("prefill, picture", 15, self._prefill(sizes, media=True)),
            Part("decode", 15, self._sweep(decodes, requests)),
            Part("replay", 10, self._replays),
            Part("coverage", 15, self._coverage),
            Part("prefill, text", 15, self._prefill(sizes, media=False)),
            Part("encoder", 30, lambda: self._encode(sizes)),
            Part("kernels", 5, lambda: kernels(self._device)),
        ]

    def close(self) -> None:
        """Give the engines' memory back."""
        for llm in (self._engines or {}).values():
            llm.close()
        self._engines = None
        gc.collect()

    def _build(self) -> dict[str, Any]:
        dtype = getattr(torch, self._dtype)
        for size in {self._small, self._large}:
            models.build(size, self._folder / size, device=self._device, dtype=dtype)
        gc.collect()
        if self._device == "cuda":
            torch.cuda.empty_cache()
        return {"models": sorted({self._small, self._large})}

    def _run_tests(self) -> dict[str, Any]:
        """The tests marked cuda, in a process of their own."""
        missing = [m for m in _TESTS_NEED if importlib.util.find_spec(m) is None]
        if not self._tests or missing:
            why = (
                f"not installed here: {', '.join(missing)}" if missing else "left out (--no-tests)"
            )
            return {"dropped": True, "note": why}
        limit = max(min(self._budget.left - 60, 150), 10)
        command = [sys.executable, "-m", "benchmarks.gpu.device_tests"]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"ok": False, "note": f"not through within {limit:.0f} s"}
        lines = done.stdout.strip().splitlines()
        note = lines[-1] if lines else done.stderr[-500:]
        ran = " passed" in note or self._device == "cpu"  # there all of them are skipped
        return {
            "ok": done.returncode == 0 and ran,
            "note": note,
            "output": lines[-60:],
        }

    def _verify(self) -> dict[str, Any]:
        """Every graph of both ways to capture, at the full level."""
        found: dict[str, Any] = {}
        for name, backend in self._captured():
            with LLM(self._path(self._small), **self._small_settings(backend)) as llm:
                report = llm.verify()
                gpu = llm.parts.gpu
            found[name] = {k: report[k] for k in ("passed", "failed", "findings")}
            found[name]["buckets"] = len(report["rows"]) - 1
            if gpu is not None:
                found[name]["memory"] = gpu.memory.sentence()
        return {"engines": found, "ok": all(row["passed"] for row in found.values())}

    def _sanitize(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, backend in self._captured():
            settings = self._small_settings(backend) | {"sanitize": True}
            with LLM(self._path(self._small), **settings) as llm:
                found[name] = [str(finding) for finding in llm.sanitize()]
        return {"findings": found, "ok": not any(found.values())}

    @property
    def captured_modes(self) -> tuple[str, ...]:
        """Names of the engines that capture."""
        return tuple(name for name, _ in self._captured())

    def _captured(self) -> list[tuple[str, str]]:
        return [(n, b) for n, b in MODES[self._device].items() if b != "eager"]

    def _small_settings(self, backend: str) -> dict[str, Any]:
        return {
            "device": self._device, "backend": backend, "dtype": self._dtype, "max_num_seqs": 4,
            "prefill_buckets": (64, 256), "decode_buckets": (1, 4),
            "proof": "off", "padding_cost": "free", "max_context": 1024,
        }  # fmt: skip

    def _path(self, size: str) -> Path:
        return self._folder / size

    def _open(self) -> Engines:
        if self._engines is None:
            self._engines = open_engines(
                self._path(self._large), self._device, dtype=self._dtype,
                largest=self._largest, requests=4 if self._quick else 64,
            )  # fmt: skip
        return self._engines

    def _prefill(self, sizes: tuple[int, ...], *, media: bool) -> Callable[[], dict[str, Any]]:
        return lambda: prefills(self._open(), sizes, self._budget, rounds=self._rounds, media=media)

    def _sweep(
        self, measure: Callable[..., dict[str, Any]], sizes: tuple[int, ...]
    ) -> Callable[[], dict[str, Any]]:
        return lambda: measure(self._open(), sizes, self._budget, rounds=self._rounds)

    def _replays(self) -> dict[str, Any]:
        if self._device != "cuda":
            return {"dropped": True, "note": "kernels of a CPU have no clock of their own"}
        engines = {name: self._open()[name] for name in self.captured_modes}
        return replays(engines, _REPLAYS, self._budget, Cuda())

    def _encode(self, sizes: tuple[int, ...]) -> dict[str, Any]:
        self.close()
        path = self._path(self._large)
        engines = open_encoders(path, self._device, dtype=self._dtype, sizes=sizes)
        try:
            return encoders(engines, sizes, self._budget, rounds=self._rounds)
        finally:
            for llm in engines.values():
                llm.close()

    def _coverage(self) -> dict[str, Any]:
        return coverage(self._open(), prompts=4 if self._quick else 24, largest=self._largest - 64)
