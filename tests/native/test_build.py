"""Compiling: no compiler, bad ones, bad folders, two at once, files that were cut off."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firstlight.native import Kernels, NativeUnavailableError, build, build_library

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def compiler(folder: Path, body: str, *, version: str = "echo a compiler") -> None:
    """A ``c++`` that answers ``--version`` and else does as ``body`` says; $out is its output."""
    path = folder / "c++"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then {version}; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done; out=$2\n'
        f"{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def copier(folder: Path, library: Path) -> None:
    """A compiler that takes a moment to give the library that is already there."""
    compiler(folder, f"/bin/sleep 0.2; /bin/cp {library} $out")


def test_without_a_compiler_the_reason_names_those_that_were_looked_for(
    empty_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(NativeUnavailableError, match=r"no C\+\+ compiler: none of c\+\+, g\+\+"):
        build_library(tmp_path)


def test_without_a_cache_folder_nothing_is_compiled() -> None:
    with pytest.raises(NativeUnavailableError, match="a cache folder is needed"):
        build_library(None)


@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        ("echo 'x.h:1: error: no such header' >&2; exit 1", "echo 1", "error: no such header"),
        ("exit 3", "echo 1", "could not compile the kernels: no message"),
        ("printf '\\377\\376 error' >&2; exit 1", "echo 1", "could not compile"),
        ("exit 0", "printf '\\377'; exit 1", "--version failed"),
        ("/bin/rm -f $out", "echo 1", "failed"),
    ],
)
def test_a_compiler_that_fails_is_a_reason_and_leaves_no_file(
    empty_path: Path, tmp_path: Path, body: str, version: str, reason: str
) -> None:
    compiler(empty_path, body, version=version)
    with pytest.raises(NativeUnavailableError, match=reason):
        build_library(tmp_path)
    assert not list((tmp_path / "native").glob("*")) if (tmp_path / "native").exists() else True


@pytest.mark.parametrize("body", ["echo garbage >$out", ": >$out"])
def test_what_is_no_library_is_a_reason(empty_path: Path, tmp_path: Path, body: str) -> None:
    compiler(empty_path, body)
    with pytest.raises(NativeUnavailableError, match="cannot be loaded"):
        Kernels(build_library(tmp_path), 1)


def test_a_library_without_the_functions_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.cpp").write_text("int nothing;\n")
    made = tmp_path / "empty.so"
    found = next(c for name in build.COMPILERS if (c := shutil.which(name)))
    build._run([found, "-shared", "-fPIC", "-o", str(made), str(tmp_path / "empty.cpp")])
    with pytest.raises(NativeUnavailableError, match="cannot be loaded"):
        Kernels(made, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_folder_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NativeUnavailableError, match="cannot write to"):
        build_library(tmp_path)


def test_a_file_in_the_folders_place_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "native").write_text("")
    with pytest.raises(NativeUnavailableError, match="cannot write to"):
        build_library(tmp_path)


def test_what_was_compiled_is_taken_again(library: Path, empty_path: Path, tmp_path: Path) -> None:
    copier(empty_path, library)
    first = build_library(tmp_path)
    compiler(empty_path, "exit 1")
    assert build_library(tmp_path) == first


@pytest.mark.parametrize("kept", [0, 10, 5000, -1])
def test_a_file_that_was_cut_off_is_compiled_again(
    library: Path, empty_path: Path, tmp_path: Path, kept: int
) -> None:
    copier(empty_path, library)
    made = build_library(tmp_path)
    whole = made.read_bytes()
    made.write_bytes(whole[:kept])
    assert build_library(tmp_path) == made
    assert made.read_bytes() == whole
    assert Kernels(made, 1).threads == 1


@pytest.mark.parametrize("part", ["cpu", "version", "flags", "source"])
def test_another_cpu_compiler_flag_or_source_gets_a_file_of_its_own(
    library: Path, empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    copier(empty_path, library)
    first = build_library(tmp_path)
    if part == "cpu":
        monkeypatch.setattr(build, "_cpu", lambda: "another one")
    elif part == "flags":
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    elif part == "source":
        (tmp_path / "more.h").write_text("// more\n")
        files = (*build.sources(), tmp_path / "more.h")
        monkeypatch.setattr(build, "sources", lambda: files)
    else:
        compiler(empty_path, f"/bin/cp {library} $out", version="echo another version")
    second = build_library(tmp_path)
    assert second != first
    assert first.is_file()


def test_two_that_compile_at_once_both_get_a_whole_file(
    library: Path, empty_path: Path, tmp_path: Path
) -> None:
    copier(empty_path, library)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: build_library(tmp_path), range(2)))
    assert made[0] == made[1]
    assert [path.name for path in (tmp_path / "native").iterdir()] == [made[0].name]
    assert Kernels(made[0], 1).threads == 1
