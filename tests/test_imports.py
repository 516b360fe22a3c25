"""Imports point one way only, and libraries stay where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.check_structure import MAY_IMPORT, check_environment, check_imports

PACKAGE = Path(__file__).parents[1] / "src" / "firstlight"


def _package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_package_has_no_wrong_edge() -> None:
    assert [str(v) for v in check_imports(PACKAGE)] == []


def test_the_environment_is_read_in_the_configuration_only() -> None:
    assert [str(v) for v in check_environment(PACKAGE)] == []


def test_every_part_of_the_package_is_in_the_table() -> None:
    parts = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))))
        and path.stem not in ("__init__", "__main__")
    }
    assert parts <= set(MAY_IMPORT)


def test_the_table_has_no_cycle() -> None:
    settled: set[str] = set()
    while settled != set(MAY_IMPORT):
        ready = {part for part, may in MAY_IMPORT.items() if may <= settled} - settled
        assert ready, f"a cycle among {set(MAY_IMPORT) - settled}"
        settled |= ready


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("core/a.py", "from firstlight.engine.llm import LLM", "core must not import engine"),
        ("core/a.py", "import firstlight.media", "core must not import media"),
        ("core/a.py", "from firstlight import sampling", "core must not import sampling"),
        ("core/a.py", "from ..engine import llm", "core must not import engine"),
        ("core/a.py", "from .. import engine", "core must not import engine"),
        ("core/a.py", "def f():\n    import firstlight.cli", "core must not import cli"),
        ("graphs/a.py", "from firstlight.memory import Page", "graphs must not import memory"),
        (
            "graphs/backends/a.py",
            "from firstlight.models import x",
            "graphs must not import models",
        ),
        ("sampling/a.py", "from firstlight.graphs import x", "sampling must not import graphs"),
        ("errors.py", "from firstlight.core import x", "errors must not import core"),
        ("strange/a.py", "from firstlight.core import x", "not in the table"),
        ("core/a.py", "import torch.nn", "core must not import torch"),
        ("contract.py", "from torch import Tensor", "contract must not import torch"),
        ("engine/scheduling/a.py", "import torch", "engine/scheduling must not import torch"),
        ("engine/scheduling.py", "import torch", "engine/scheduling must not import torch"),
        ("graphs/a.py", "import transformers", "transformers is imported outside"),
        ("engine/llm.py", "from transformers import x", "transformers is imported outside"),
    ],
)
def test_a_wrong_edge_is_found(tmp_path: Path, file: str, text: str, message: str) -> None:
    violations = [str(v) for v in check_imports(_package(tmp_path, {file: text}))]
    assert len(violations) == 1
    assert message in violations[0]
    assert file in violations[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("engine/llm.py", "from firstlight.graphs import x\nimport torch"),
        ("engine/prompt.py", "import transformers"),
        ("engine/scheduling_of_others.py", "import torch"),
        ("models/engine/scheduling/a.py", "import torch"),
        ("models/adapters/a.py", "import transformers\nfrom firstlight.attention import x"),
        ("media/a.py", "from transformers import x\nfrom .b import y"),
        ("core/a.py", "from firstlight.core.b import x\nfrom firstlight import errors"),
        ("__init__.py", "from firstlight.engine.llm import LLM"),
    ],
)
def test_a_right_edge_is_not(tmp_path: Path, file: str, text: str) -> None:
    assert list(check_imports(_package(tmp_path, {file: text}))) == []


@pytest.mark.parametrize("text", ["import os\nos.environ['A']", "from os import x\nx.getenv('A')"])
def test_a_read_of_the_environment_is_found(tmp_path: Path, text: str) -> None:
    package = _package(tmp_path, {"core/a.py": text, "config.py": text})
    assert ["core/a.py" in str(v) for v in check_environment(package)] == [True]
