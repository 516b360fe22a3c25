"""Where transformers' names are, remembered between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.cli.import_structure import Structure, remembered

FOUND: Structure = {frozenset(): {"a.names": {"A"}}, frozenset({"torch"}): {"a.model": {"B", "C"}}}


class Asked:
    """Stands in for what reads the files, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []

    def __call__(self, module_path: str | Path, prefix: str | None = None) -> Structure:
        self.calls.append((str(module_path), prefix))
        return FOUND


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The models of an installed package."""
    folder = tmp_path / "site-packages" / "transformers" / "models"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "../__init__.py"):
        (folder / name).write_text("version = 1")
    return folder


def test_files_are_read_once_for_all_processes_and_forms_of_the_question(
    models: Path, tmp_path: Path
) -> None:
    first, second = Asked(), Asked()
    assert remembered(first, tmp_path)(models) == FOUND
    assert remembered(second, tmp_path)(str(models / "__init__.py")) == FOUND
    assert (len(first.calls), second.calls) == (1, [])


def test_a_prefix_stands_before_each_module(models: Path, tmp_path: Path) -> None:
    structure = remembered(Asked(), tmp_path)
    for _ in range(2):
        assert structure(models, prefix="models") == {
            frozenset(): {"models.a.names": {"A"}},
            frozenset({"torch"}): {"models.a.model": {"B", "C"}},
        }


def test_who_changes_an_answer_changes_no_other(models: Path, tmp_path: Path) -> None:
    structure = remembered(Asked(), tmp_path)
    structure(models)[frozenset()]["a.names"].add("D")
    assert structure(models) == FOUND


def test_another_version_is_read_anew(models: Path, tmp_path: Path) -> None:
    remembered(Asked(), tmp_path)(models)
    (models.parent / "__init__.py").write_text("version = 2")
    again = Asked()
    remembered(again, tmp_path)(models)
    assert len(again.calls) == 1


def test_a_checkout_that_somebody_works_in_is_always_read(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "transformers" / "models"
    folder.mkdir(parents=True)
    asked = Asked()
    for _ in range(2):
        remembered(asked, tmp_path)(folder, "models")
    assert asked.calls == [(str(folder), "models")] * 2


@pytest.mark.parametrize("content", [b"", b"no such form", b"i\x01\x00\x00\x00"])
def test_a_file_that_is_not_what_was_written_is_written_anew(
    content: bytes, models: Path, tmp_path: Path
) -> None:
    structure = remembered(Asked(), tmp_path)
    structure(models)
    (file,) = (tmp_path / "imports").iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    assert structure(models) == FOUND
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert remembered(Asked(), tmp_path / "file")(models) == FOUND


@pytest.mark.slow
def test_every_name_of_transformers_is_where_it_was(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from contextlib import nullcontext\n"
        "from pathlib import Path\n"
        "from firstlight.cli.import_structure import remembered_structure\n"
        "memory = remembered_structure(Path(sys.argv[1])) if sys.argv[1:] else nullcontext()\n"
        "with memory:\n"
        "    import transformers, transformers.models\n"
        "for module in (transformers, transformers.models):\n"
        "    print(sorted(module._class_to_module.items()))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = [
        subprocess.run(
            [sys.executable, "-c", script, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=environ,
        ).stdout
        for arguments in ([], [str(tmp_path)], [str(tmp_path)])
    ]
    assert len(told[0]) > 100_000
    assert told[0] == told[1] == told[2]
