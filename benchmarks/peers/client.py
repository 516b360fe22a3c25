"""The driver's side of an engine's process."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.peers import processes
from benchmarks.peers.workers.loop import Answer, Load, Request

ROOT: Final = Path(__file__).resolve().parents[2]


class PeerError(Exception):
    """An engine did not do what it was asked; the message says what it said."""


class PeerGone(PeerError):
    """The process has ended, or was ended as it did not answer in time."""


class Worker:
    """A process that answers one message at a time and sleeps in between.

    Attributes:
        pid: of the process; its children belong to it.
    """

    def __init__(
        self,
        python: Path,
        module: str,
        *,
        log: Path,
        environment: Mapping[str, str],
        cpus: Sequence[int],
    ) -> None:
        """Start it; what it prints goes to ``log``.

        Args:
            python: interpreter of its environment.
            module: below ``benchmarks.peers.workers``, or a full name with dots.
            cpus: the only ones that it may run on.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        name = module if "." in module else f"benchmarks.peers.workers.{module}"
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(python), "-m", name],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def load(self, load: Load, timeout: float) -> dict[str, Any]:
        """Load a model; the reply has ``load_s`` and ``versions``."""
        return self._ask({"do": "load", "load": asdict(load)}, timeout)

    def run(self, requests: Sequence[Request], max_tokens: int, timeout: float = 600) -> Answer:
        """Greedy answers of exactly ``max_tokens`` tokens.

        Raises:
            PeerError: also where the answers are not as many or as long as asked.
        """
        asked = {
            "do": "run",
            "requests": [asdict(request) for request in requests],
            "max_tokens": max_tokens,
        }
        answer = Answer(**self._ask(asked, timeout))
        lengths = [len(ids) for ids in answer.ids]
        if lengths != [max_tokens] * len(requests):
            raise PeerError(f"answers of {lengths} tokens; {max_tokens} each were asked for")
        return answer

    def score(self, request: Request, ids: Sequence[int], timeout: float = 600) -> list[float]:
        """How far below the best logit each token of an answer lies; the reference can tell."""
        asked = {"do": "score", "request": asdict(request), "ids": list(ids)}
        regrets: list[float] = self._ask(asked, timeout)["regrets"]
        return regrets

    def facts(self, timeout: float = 60) -> dict[str, Any]:
        """What the engine tells of itself."""
        return self._ask({"do": "facts"}, timeout)

    def memory(self) -> processes.Memory:
        """Of the process and its children."""
        return processes.memory(self.pid)

    def cpu_seconds(self) -> float:
        """That the process and its children have used."""
        return processes.cpu_seconds(self.pid)

    def close(self) -> None:
        """End the process, and what it started."""
        children = processes.tree(self.pid)[1:]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(OSError):  # what was not sent any more
            stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()
        for child in children:
            if child in processes.tree(child):
                os.kill(child, 9)

    def _ask(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise PeerGone(f"the process has ended: {self._last_words()}") from error
        ready, _, _ = select.select([stdout], [], [], timeout)
        if not ready:
            self._process.kill()
            raise PeerGone(f"no answer to {message['do']!r} in {timeout:g} s")
        line = stdout.readline()
        if not line:
            raise PeerGone(f"the process ended: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
