"""``firstlight serve`` as its users run it: a process on a free port, all settings by default."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs.

    Attributes:
        url: its address, without ``/v1``.
        log: what it wrote to standard error, so far.
    """

    url: str
    log: Path

    def faults(self) -> list[str]:
        """Lines of the log that tell of a failure of the server's own."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if "ERROR" in line or "Traceback" in line]

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        page = httpx2.get(f"{self.url}/metrics", verify=False).text
        found = [line for line in page.splitlines() if line.startswith(f"firstlight_{name}{{")]
        assert found, f"no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Served]:
    """Start ``firstlight serve`` with ``arguments`` and end it; its log lies in ``folder``."""
    command = [sys.executable, "-m", "firstlight", "serve", *arguments, "--port", "0"]
    environ = {**os.environ, "FIRSTLIGHT_API_KEY": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    log = folder / "server.log"
    with log.open("w") as errors:
        child = subprocess.Popen(
            [*command, "--no-progress"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environ,
        )
    assert child.stdout is not None
    try:
        url = next((line.split()[1] for line in child.stdout if line.startswith("listening")), None)
        assert url is not None, log.read_text()
        yield Served(url, log)
        assert child.poll() is None, "the server ended before the test did"
    finally:
        child.terminate()
        child.wait(60)
        child.stdout.close()
