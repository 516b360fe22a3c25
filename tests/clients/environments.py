"""Each client in an environment of its own, made once, in ``build/clients/``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "clients"
REQUIREMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "langchain": ("langchain-openai>=1.7,<2", "langchain-tests>=1.1.9,<2"),
        "litellm": ("litellm>=1.110,<2", "pytest>=8.3"),
        "aiperf": ("aiperf==0.13.*",),
        "guidellm": ("guidellm[vision]==0.8.*",),
        "schemathesis": ("schemathesis>=4.32,<5",),
    }
)
"""What is installed for each client. What follows from it is pip's to find."""


def environment(name: str) -> Path:
    """The folder of a client's programs; the first call installs it, which takes minutes.

    An environment is made anew when its requirements, this interpreter or the folder change. Where
    a client wants torch, ``constraints-cpu.txt`` says which, as for firstlight itself.
    """
    folder = FOLDER / name
    binaries, stamp = folder / "bin", folder / "stamp"
    wanted = "\n".join((*REQUIREMENTS[name], sys.version, str(folder)))
    if stamp.exists() and stamp.read_text() == wanted:
        return binaries
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    constraints = ["-c", str(ROOT / "constraints-cpu.txt")]
    _run([*pip, "--disable-pip-version-check", *constraints, *REQUIREMENTS[name]])
    stamp.write_text(wanted)
    return binaries


def run(
    name: str,
    command: list[str],
    *,
    cwd: Path,
    seconds: float = 300,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run a program of a client's environment, whatever it ends with.

    Args:
        command: the program's name in the environment, and its arguments.
        environ: variables beside the usual ones; those of this project's own tests are left out.
    """
    binaries = environment(name)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "HF_"))}
    kept |= {"PATH": f"{binaries}{os.pathsep}{kept['PATH']}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(binaries / command[0]), *command[1:]],
        cwd=cwd,
        env=kept | {"OPENAI_API_KEY": "none"} | environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}", pytrace=False)
