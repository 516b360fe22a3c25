"""The snippets of ``docs/clients.md`` run as they are printed, but for the address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.environments import ROOT, run
from tests.clients.serving import Served

PAGE = (ROOT / "docs" / "clients.md").read_text()
SNIPPETS = dict(re.findall(r"### (\w+)\n\n```python\n(.*?)```", PAGE, re.DOTALL))
ADDRESS = "http://127.0.0.1:8000"


def test_each_python_client_has_a_snippet() -> None:
    assert SNIPPETS.keys() == {"openai", "langchain", "litellm"}


@pytest.mark.parametrize("client", SNIPPETS)
def test_a_snippet_prints_an_answer(client: str, bundled: Served, tmp_path: Path) -> None:
    program = tmp_path / "snippet.py"
    program.write_text(SNIPPETS[client].replace(ADDRESS, bundled.url))
    if client == "openai":  # in the environment of the project's own tests
        command = [sys.executable, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    else:
        done = run(client, ["python", str(program)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
