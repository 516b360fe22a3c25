"""Connections: how long one may be open without the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits without end for the first request of a connection,
    and for the rest of a head that has begun.

    A new connection may say nothing for as long as one between two requests
    (``timeout_keep_alive``).
    """

    head_s: ClassVar[float]
    """How long a head may take from its first byte to its last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None
        self._began = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first byte."""
        super().connection_made(transport)
        self._wait(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        """Read; if no request is there after that, wait for the rest of its head."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_waiting()
        elif not self._began:
            self._began = True
            self._wait(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_waiting()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(seconds, self._give_up)

    def _end_waiting(self) -> None:
        self._began = False
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def patient(head_s: float) -> type[PatientProtocol]:
    """The protocol with its limit; uvicorn makes the objects itself."""
    return type("PatientProtocol", (PatientProtocol,), {"head_s": head_s})
