"""Whole commands: from start to answer, imports included."""

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
