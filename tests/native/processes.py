"""Scripts in processes of their own, with the package of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(
    script: str, *arguments: str, seconds: int = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``script``; hanging for so many seconds is a failure."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
