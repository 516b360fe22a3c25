"""An environment per peer, made on request and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.client import ROOT
from benchmarks.peers.engines import EngineSpec

_STAMP: Final = "firstlight-stamp"
_SHIM: Final = Path(__file__).parent / "torchvision_shim.py"


class InstallError(Exception):
    """A peer could not be installed here; the message says what pip said."""


@dataclass(frozen=True, slots=True)
class Environments:
    """Environments below a folder, one for each peer.

    Attributes:
        home: everything that can be made again lies below it.
        say: told of each step that takes long.
        may_install: whether a peer that is not there is installed.
    """

    home: Path
    say: Callable[[str], None] = print
    may_install: bool = False

    def folder(self, spec: EngineSpec) -> Path:
        """Where a peer's environment is or would be."""
        return self.home / "env" / spec.name

    def python(self, spec: EngineSpec) -> Path:
        """The interpreter of an engine; its environment is made first if it is not there.

        Raises:
            InstallError: it is not there and may not or cannot be made; it is then gone again.
        """
        if not spec.packages:
            return Path(sys.executable)
        folder = self.folder(spec)
        stamp = folder / _STAMP
        if not self.installed(spec):
            if not self.may_install:
                raise InstallError("not installed; --install does that")
            self.say(f"installing {', '.join(spec.packages)} ...")
            try:
                self._install(spec, folder)
            except (OSError, subprocess.SubprocessError) as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise InstallError(f"cannot be installed here: {_reason(error)}") from error
            stamp.write_text(_content(spec))
        return folder / "bin" / "python"

    def installed(self, spec: EngineSpec) -> bool:
        """Whether it can be run without installing anything."""
        stamp = self.folder(spec) / _STAMP
        return not spec.packages or (stamp.is_file() and stamp.read_text() == _content(spec))

    def size(self, spec: EngineSpec) -> int:
        """Bytes of the environment."""
        files = (path for path in self.folder(spec).rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())

    def _install(self, spec: EngineSpec, folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
        constraints = ["-c", str(ROOT / "constraints-cpu.txt")]
        _run([*pip, "install", "--no-compile", *constraints, *spec.packages])
        if spec.dropped:
            _run([*pip, "uninstall", "-y", *spec.dropped])
        if spec.torchvision:
            for site in folder.glob("lib/python*/site-packages"):
                shutil.copy(_SHIM, site / "_torchvision_shim.py")
                (site / "_torchvision_shim.pth").write_text("import _torchvision_shim\n")


def _content(spec: EngineSpec) -> str:
    """What an environment was made from."""
    parts = [*spec.packages, "without", *spec.dropped]
    if spec.torchvision:
        parts.append(hashlib.sha256(_SHIM.read_bytes()).hexdigest())
    return "\n".join(parts) + "\n"


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _reason(error: Exception) -> str:
    """The last line that a failed command wrote, or the error itself."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        if lines:
            return str(lines[-1])
    return str(error)
