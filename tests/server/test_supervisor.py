"""The process above a server: when it starts it anew, and when it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.errors import ConfigError
from firstlight.server.address import inherited
from firstlight.server.settings import ServerSettings
from firstlight.server.supervisor import Supervisor

SETTINGS = ServerSettings(port=0)


def counting(path: Path, program: str) -> Callable[[int], list[str]]:
    """A command that adds its socket's number to a file, and then does what ``program`` says with
    ``n``, how often it was started."""
    text = f"""
import os, signal, sys, time
with open({str(path)!r}, "a+") as file:
    file.write(sys.argv[1] + "\\n")
    file.flush()
    file.seek(0)
    n = len(file.readlines())
{program}
"""
    return lambda fd: [sys.executable, "-S", "-c", text, str(fd)]


def starts(path: Path) -> list[str]:
    return path.read_text().split()


def test_what_dies_is_started_anew_on_the_same_socket(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    program = "os.kill(os.getpid(), signal.SIGKILL) if n < 3 else sys.exit(0)"
    assert Supervisor(counting(path, program), quick_s=0).run(SETTINGS) == 0
    assert len(starts(path)) == 3
    assert len(set(starts(path))) == 1


def test_what_cannot_even_start_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    assert Supervisor(counting(path, "sys.exit(1)"), quick_s=60).run(SETTINGS) == 1
    assert len(starts(path)) == 3


def test_wrong_usage_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    assert Supervisor(counting(path, "sys.exit(2)")).run(SETTINGS) == 2
    assert len(starts(path)) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_goes_to_the_server_and_is_the_end(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    path = tmp_path / "starts"
    program = "signal.signal(signal.SIGINT, lambda *a: sys.exit(1)); time.sleep(20)"

    def tell() -> None:
        while not path.exists() or not starts(path):
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), number)

    teller = threading.Thread(target=tell)
    teller.start()
    began = time.monotonic()
    assert Supervisor(counting(path, program)).run(SETTINGS) == code
    assert time.monotonic() - began < 10
    teller.join()
    assert len(starts(path)) == 1


def test_a_number_that_is_no_socket_is_an_error(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file, pytest.raises(ConfigError, match="is no socket"):
        inherited(file.fileno())
