"""The load test as a whole, for a few seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_short_load_finds_nothing_wrong_and_says_what_it_did(tmp_path: Path) -> None:
    found = tmp_path / "load.json"
    command = [sys.executable, "-m", "tools.load", "--minutes", "0.3", "--clients", "6"]
    call = subprocess.run(
        [*command, "--distinct", "24", "--json", str(found), "--logs", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert call.returncode == 0, call.stdout + call.stderr
    results = json.loads(found.read_text())
    assert all(check["holds"] for check in results["checks"])
    figures = results["figures"]
    assert figures["whole"] + figures["streamed"] > 24
    assert {"machine", "given", "resident bytes"} <= set(results)
