"""Files and functions stay small enough to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.check_structure import check_sizes

ROOT = Path(__file__).parents[1]


def _sizes(folder: Path, files: dict[str, int], function: int = 0) -> list[str]:
    source = folder / "src"
    source.mkdir()
    for name, lines in files.items():
        (source / name).write_text("x = 1\n" * lines)
    if function:
        body = "    x = 1\n" * (function - 1)
        (source / "f.py").write_text(f"async def long():\n{body}")
    return [v.message for v in check_sizes(folder)]


def test_no_file_or_function_is_too_long() -> None:
    assert [str(v) for v in check_sizes(ROOT)] == []


@pytest.mark.parametrize(("lines", "message"), [(500, ""), (501, "501 lines; at most 500")])
def test_a_long_file_is_found(tmp_path: Path, lines: int, message: str) -> None:
    found = _sizes(tmp_path, {"a.py": lines, "b.py": 1, "c.py": 1})
    assert found == ([message] if message else [])


@pytest.mark.parametrize(("lines", "message"), [(50, ""), (51, "long() has 51 lines; at most 50")])
def test_a_long_function_is_found(tmp_path: Path, lines: int, message: str) -> None:
    assert _sizes(tmp_path, {}, function=lines) == ([message] if message else [])


def test_a_package_of_long_files_is_found(tmp_path: Path) -> None:
    found = _sizes(tmp_path, {"a.py": 160, "b.py": 170, "c.py": 1})
    assert found == ["the median file has 160 lines; at most 150"]
