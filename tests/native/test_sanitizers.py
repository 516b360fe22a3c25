"""The source under the compiler's sanitizers, and compiled for other CPUs than this one."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.native import build
from tests.native.processes import run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("library")]

HERE = Path(__file__).parent
ARITHMETIC = [
    str(HERE / f"test_{n}.py")
    for n in ("weights", "linear", "int8_ops", "elementwise", "attention", "segments")
]
UNDER_FLAGS = """
import sys
import pytest
from firstlight.native import build
build.FLAGS = (*build.FLAGS, *sys.argv[1].split())
sys.exit(pytest.main(["-q", "-p", "no:randomly", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def compiler() -> str:
    found = [path for name in build.COMPILERS if (path := shutil.which(name))]
    return found[0]


def runtime(name: str) -> str:
    """A sanitizer's library, which must be loaded first; skips where there is none."""
    done = subprocess.run(
        [compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = done.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler comes without {name}")
    return path


def arithmetic_holds(cache: Path, flags: str, **environment: str) -> None:
    """The tests of the arithmetic pass with a library that is compiled with these flags too."""
    environment["XDG_CACHE_HOME"] = str(cache)
    done = run_script(UNDER_FLAGS, flags, *ARITHMETIC, seconds=1500, **environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "fork"), [("-fsanitize=thread", False), ("-fsanitize=address,undefined", True)]
)
def test_threads_resizes_and_forks_are_clean(tmp_path: Path, flags: str, fork: bool) -> None:
    """ThreadSanitizer does not follow a fork of a process with threads."""
    program = tmp_path / "stress"
    source = str(HERE / "stress.cpp")
    options = ["-O1", "-g", "-march=native", "-std=c++20", "-pthread", flags]
    include = f"-I{build.sources()[0].parent}"
    subprocess.run([compiler(), *options, include, "-o", str(program), source], check=True)
    # ThreadSanitizer wants the address space as it is without randomisation.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    done = subprocess.run(
        [*fixed, str(program), *(["fork"] if fork else [])],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "good"


def test_kernels_read_and_write_inside_their_tensors_only(tmp_path: Path) -> None:
    arithmetic_holds(
        tmp_path,
        "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined",
        LD_PRELOAD=f"{runtime('libasan.so')} {runtime('libstdc++.so.6')}",
        ASAN_OPTIONS="detect_leaks=0",
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v2", "x86-64"])
def test_kernels_compute_the_same_for_cpus_with_narrower_vectors(
    tmp_path: Path, level: str
) -> None:
    arithmetic_holds(tmp_path, f"-march={level}")
