"""Compiles the kernels for this machine, once, and keeps the result."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from firstlight.errors import FirstlightError

COMPILERS: Final = ("c++", "g++", "clang++")
# Operations keep torch's semantics of NaN and infinity: no -ffast-math.
FLAGS: Final = (
    "-O3", "-march=native", "-std=c++20", "-fPIC", "-shared", "-pthread", "-fno-math-errno",
)  # fmt: skip
_SOURCE = Path(__file__).parent / "source"
_SECONDS = 300
_MARK: Final = b"firstlight-sha256:"


class NativeUnavailableError(FirstlightError):
    """The kernels cannot be compiled or loaded here; the message says why."""


def build_library(cache_dir: Path | None) -> Path:
    """The shared library of the kernels, compiled now or earlier.

    The file's name is a digest of source, compiler, flags and CPU: what was compiled for another
    machine that shares the folder is not taken. Its last bytes are a digest of the others: a file
    that was cut off is compiled again, since to load it could end the process.

    Args:
        cache_dir: gets the library under ``native/``.

    Raises:
        NativeUnavailableError: no cache folder, no compiler, or one that cannot compile the source.
    """
    if cache_dir is None:
        raise NativeUnavailableError("a cache folder is needed to keep the compiled kernels")
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise NativeUnavailableError(
            f"no C++ compiler: none of {', '.join(COMPILERS)} is on the path"
        )
    target = cache_dir / "native" / f"firstlight-{_fingerprint(compiler)}.so"
    if not _is_whole(target):
        _compile(compiler, target)
    return target


def sources() -> tuple[Path, ...]:
    """The files that make up the library, in a fixed order."""
    return (*sorted(_SOURCE.glob("*.h")), _SOURCE / "library.cpp")


def _fingerprint(compiler: str) -> str:
    try:
        asked = _run([compiler, "--version"])
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeUnavailableError(f"{compiler} --version failed: {error}") from error
    if asked.returncode:
        raise NativeUnavailableError(f"{compiler} --version failed: {_first_error(asked.stderr)}")
    digest = hashlib.sha256("\0".join((compiler, asked.stdout, *FLAGS, _cpu())).encode())
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _cpu() -> str:
    """What ``-march=native`` depends on, as far as the system tells it."""
    facts = [platform.machine(), platform.processor()]
    info = Path("/proc/cpuinfo")
    if info.is_file():
        wanted = ("model name", "flags", "Features", "CPU part")
        lines = info.read_text(errors="replace").splitlines()
        facts += sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join(facts)


def _compile(compiler: str, target: Path) -> None:
    """Write beside ``target`` and rename, so that the file is whole or not there."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".compiling-", suffix=".so", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise NativeUnavailableError(f"cannot write to {target.parent}: {error}") from error
    work = Path(name)
    try:
        command = [compiler, *FLAGS, "-o", str(work), str(_SOURCE / "library.cpp")]
        done = _run(command)
        if done.returncode:
            raise NativeUnavailableError(
                f"{compiler} could not compile the kernels: {_first_error(done.stderr)}"
            )
        _seal(work)
        work.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeUnavailableError(f"{compiler} failed: {error}") from error
    finally:
        work.unlink(missing_ok=True)


def _seal(path: Path) -> None:
    """Append a digest; a loader does not read what is behind the tables of an ELF file."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(_MARK + digest)


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    body, mark, digest = content.rpartition(_MARK)
    return bool(mark) and hashlib.sha256(body).digest() == digest


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
    )


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line]
    return lines[0] if lines else text.strip()[:200] or "no message"
