"""``python -m benchmarks.gpu.device_tests``: the tests marked ``cuda``, where little is installed.

Only the files that hold such tests are collected: others import what a bare machine lacks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gpu.absent import stand_in_for_absent

ROOT = Path(__file__).resolve().parents[2]
MARK = "pytest.mark.cuda"


def files(tests: Path = ROOT / "tests") -> list[Path]:
    """The test files in which the mark stands."""
    return [path for path in sorted(tests.rglob("test_*.py")) if MARK in path.read_text()]


def arguments() -> list[str]:
    """For pytest. Warnings are no errors here: what a driver or another version of a library warns
    of says nothing of the kernels."""
    chosen = [str(path.relative_to(ROOT)) for path in files()]
    return ["-q", "-m", "cuda", "-p", "no:randomly", "-o", "filterwarnings=default", *chosen]


def main() -> int:
    """pytest's exit status."""
    stand_in_for_absent()
    import pytest

    return int(pytest.main(arguments()))


if __name__ == "__main__":
    sys.exit(main())
