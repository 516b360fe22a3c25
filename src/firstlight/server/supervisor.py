"""A small process above the server, which starts it anew when it dies.

It holds the socket, so that clients who connect meanwhile wait instead of being refused. It loads
neither the model nor any library that does.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from firstlight.server.address import bind
from firstlight.server.logs import configure, log_event
from firstlight.server.settings import ServerSettings

WRONG_USAGE: Final = 2
"""The command line's code for what another try would not mend."""
ENGINE_FAILED: Final = 3
"""A server's code when its engine cannot be made clean."""
_QUICK_S = 5.0
_TRIES = 3
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOG = logging.getLogger("firstlight.supervisor")


class Supervisor:
    """Runs a command until it ends as it was told to.

    Args:
        command: makes the command from the number of the socket that it is to listen on.
        quick_s: a process that dies within this many seconds has not even started; after three of
            them in a row nothing is tried any more.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], *, quick_s: float = _QUICK_S
    ) -> None:
        self._command = command
        self._quick_s = quick_s
        self._child: subprocess.Popen[bytes] | None = None
        self._told: signal.Signals | None = None

    def run(self, settings: ServerSettings) -> int:
        """Supervise until SIGTERM, Ctrl-C, or a failure that would only come again.

        Returns:
            An exit code.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        configure(settings.log_format)
        before = {s: signal.signal(s, self._tell) for s in _SIGNALS}
        try:
            with bind(settings.host, settings.port) as sock:
                sock.set_inheritable(True)
                return self._run(sock.fileno())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self, fd: int) -> int:
        quick = 0
        while True:
            began = time.monotonic()
            code = self._once(fd)
            if self._told is not None:
                return 130 if self._told is signal.SIGINT else 0
            if code in (0, WRONG_USAGE):
                return code
            lived = time.monotonic() - began
            quick = quick + 1 if lived < self._quick_s else 0
            log_event(
                _LOG,
                "the server died",
                logging.ERROR,
                code=code,
                seconds=round(lived, 1),
                row=quick,
            )
            if quick >= _TRIES:
                return 1

    def _once(self, fd: int) -> int:
        # A session of its own: Ctrl-C comes through this process, once.
        self._child = subprocess.Popen(self._command(fd), pass_fds=[fd], start_new_session=True)
        if self._told is not None:
            self._child.send_signal(self._told)
        return self._child.wait()

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = signal.Signals(number)
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)


def die_with_parent() -> None:
    """End this process when the one above it is gone, even if that was killed. On Linux alone."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, from linux/prctl.h
