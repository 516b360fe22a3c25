"""The ledger is what a process grows by; see :mod:`tests.engine.growth` for what is compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstlight.graphs import default_ladder

ROOT = Path(__file__).parents[2]
FEW = (64, 256, 1024, 2048)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps")
@pytest.mark.parametrize(
    ("settings", "buckets"),
    [
        ({"dtype": "bfloat16"}, FEW),
        ({"dtype": "float32"}, FEW),
        ({"dtype": "float32", "fuse": False, "proof": "off"}, FEW),
        # Proofs run windows of rows, shapes of their own: in a ladder of many buckets the kernels
        # that oneDNN compiles for those take more than a tenth (13 of 128 MB were found).
        ({"dtype": "bfloat16", "proof": "off", "padding_cost": "free"}, default_ladder(1024)),
    ],
    ids=["bfloat16", "float32", "as-loaded", "default-ladder"],
)
def test_the_bytes_of_the_ledger_are_within_10_percent_of_what_the_process_grows_by(
    settings: dict[str, Any], buckets: tuple[int, ...]
) -> None:
    argument = json.dumps({"settings": settings, "buckets": buckets})
    command = [sys.executable, "-m", "tests.engine.growth", argument]
    path = f"{ROOT / 'src'}:{ROOT}"
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["ledger"] == pytest.approx(found["grown"], rel=0.1), found
