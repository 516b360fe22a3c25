"""A server of our own, for the time of a measurement."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from firstlight.errors import ConfigError

_READY = "listening"
_END_S = 60.0
_SHOWN = 2000


@contextmanager
def server_process(model: str, options: Sequence[str] = ()) -> Iterator[str]:
    """``firstlight serve`` on a free port, as a process of its own, until the block ends.

    Its graphs are all there from the start: one that is proven meanwhile would be measured with.

    Args:
        model: as ``firstlight serve`` takes it.
        options: further ones of that command.

    Yields:
        Its address, once it serves.

    Raises:
        ConfigError: it ended before; with what it said.
    """
    command = [sys.executable, "-m", "firstlight", "serve", model]
    fixed = ["--no-progress", "--no-late-graphs", "--port", "0"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, *fixed, *options], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield _address(process, log)
        finally:
            _end(process)


def _address(process: subprocess.Popen[str], log: IO[bytes]) -> str:
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    code = process.wait()
    log.seek(0)
    said = log.read().decode("utf-8", "replace").strip()[-_SHOWN:]
    raise ConfigError(f"firstlight serve ended with {code}: {said}")


def _end(process: subprocess.Popen[str]) -> None:
    """By a signal that lets it finish; by another if it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
