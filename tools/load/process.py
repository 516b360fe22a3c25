"""The server under test: a process of its own, with what the system says about it. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

START_S = 180.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a process: resident bytes, threads, open files."""

    rss: int
    threads: int
    files: int


def running(pid: int) -> bool:
    """Whether a process is there and not only waits to be buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


class ServerProcess:
    """``firstlight serve`` on a free port, from its start to its end.

    Args:
        options: of the command line.
        log: where its lines go.
        module: what is run: the package, or something that wraps it.

    Attributes:
        start_s: seconds from the command to its address.

    Raises:
        RuntimeError: it did not start; with its last lines.
    """

    def __init__(self, options: Sequence[str], log: Path, *, module: str = "firstlight") -> None:
        command = [sys.executable, "-m", module, "serve", "--port", "0", "--no-progress"]
        self.log = log
        began = time.monotonic()
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*command, *options], stdout=file, stderr=subprocess.STDOUT
            )
        self.url = self._wait(began + START_S)
        self.start_s = time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()

    @property
    def pid(self) -> int:
        """Of the process that was started: the supervisor, where there is one."""
        return self._process.pid

    @property
    def child(self) -> int | None:
        """The process below it, if there is one now."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except OSError:
            return None
        return next(map(int, text.split()), None)

    @property
    def engine(self) -> int:
        """The process that holds the engine."""
        return self.child or self.pid

    def facts(self) -> Facts:
        """Of the engine's process.

        Raises:
            OSError: there is none at the moment.
        """
        root = Path(f"/proc/{self.engine}")
        status = dict(
            line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line
        )
        rss = int(status["VmRSS"].split()[0]) << 10
        return Facts(rss, int(status["Threads"]), len(list((root / "fd").iterdir())))

    def send(self, number: signal.Signals) -> None:
        """A signal, to the process that was started."""
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait(seconds)

    def lines(self, containing: str) -> list[str]:
        """Of its log."""
        text = self.log.read_text(errors="replace")
        return [line for line in text.splitlines() if containing in line]

    def _wait(self, until: float) -> str:
        while time.monotonic() < until and self._process.poll() is None:
            for line in self.lines("listening"):
                return line.split()[1]
            time.sleep(0.05)
        last = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
        self._process.kill()
        raise RuntimeError(f"the server did not start:\n{last}")
