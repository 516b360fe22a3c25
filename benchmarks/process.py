"""Whole commands: from start to answer and to ready, imports included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.interleave import Sample
from benchmarks.row import Row


def start_to_answer(picture: Path, *, rounds: int = 3) -> Row:
    """Seconds of ``firstlight run`` about a picture, in a fresh process each round."""
    command = [sys.executable, "-m", "firstlight", "run", "--no-progress"]
    command += ["--image", str(picture), "What is in the picture?"]
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    sample = Sample(tuple(seconds))
    return Row(
        "firstlight run, start to answer",
        ours=round(sample.median * 1e3, 1),
        limit=15_000,
        spread=round(max(seconds) / sample.best, 2),
    )


def start_to_ready(model: str | None = None, *, rounds: int = 3) -> Row:
    """Seconds from the start of ``firstlight serve`` to its address, caches warm.

    A first start that is not counted fills the caches.

    Args:
        model: what is served; None is the bundled model.
    """
    command = [sys.executable, "-m", "firstlight", "serve", "--no-progress", "--port", "0"]
    command += [] if model is None else [model]
    seconds = [_until_listening(command) for _ in range(rounds + 1)][1:]
    sample = Sample(tuple(seconds))
    name = "bundled" if model is None else Path(model).name
    return Row(
        f"firstlight serve, start to ready, {name}",
        ours=round(sample.median * 1e3, 1),
        limit=5_000 if model is None else None,
        spread=round(max(seconds) / sample.best, 2),
    )


def _until_listening(command: list[str]) -> float:
    """RuntimeError if the process ends before it says its address."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        ready = any(line.startswith("listening") for line in process.stdout)
        took = time.perf_counter() - began
        process.terminate()
    if not ready:
        raise RuntimeError(f"{' '.join(command)} ended before it listened")
    return took
