"""What is built to be installed has all that the package reads at run time."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
IGNORED = {".pyc"}
SOURCES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src" / "firstlight").rglob("*")
    if path.is_file() and path.suffix not in IGNORED and "__pycache__" not in path.parts
}


def test_the_package_has_sources_in_other_languages() -> None:
    assert "firstlight/native/source/library.cpp" in SOURCES
    assert "firstlight/native/source/threads.h" in SOURCES


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(made) as wheel:
        assert set(wheel.namelist()) >= SOURCES


@pytest.mark.slow
def test_a_source_distribution_has_every_file_of_the_package(tmp_path: Path) -> None:
    (made,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(made) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
    assert names >= SOURCES
