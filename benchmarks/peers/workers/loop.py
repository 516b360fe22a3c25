"""The process of an engine: one JSON object a line in, one out, asleep in between."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Protocol, TextIO


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt: the same one as text and as token ids, and paths of its pictures."""

    text: str
    ids: list[int]
    images: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of requests that were handed over together.

    Attributes:
        ttft_s: seconds from the call to the first token of the first request that has one.
        total_s: seconds of the whole call.
        ids: the tokens of each answer.
        prompt_tokens: of each prompt, as the engine counts them; None if it does not tell.
        precise: whether ``ttft_s`` is the time of a token and not that of the whole call.
    """

    ttft_s: float
    total_s: float
    ids: list[list[int]]
    prompt_tokens: list[int] | None = None
    precise: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What to load: ``context`` is the longest prompt and answer, ``options`` are the engine's."""

    model: str
    dtype: str
    threads: int
    context: int
    vision: bool
    options: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """What a worker module offers to :func:`serve`."""

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """Exactly ``max_tokens`` greedy tokens for each request, all handed over at once."""

    def facts(self) -> dict[str, Any]:
        """What is to be known of the loaded engine, JSON-ready."""


def serve(load: Callable[[Load], Engine], distributions: Sequence[str]) -> None:
    """Answer the driver until its pipe closes.

    Args:
        load: makes the engine.
        distributions: packages whose versions are told.
    """
    replies = _take_stdout()
    engine: Engine | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if message["do"] == "load":
                began = time.perf_counter()
                engine = load(Load(**message["load"]))
                seconds = time.perf_counter() - began
                reply: dict[str, Any] = {"load_s": seconds, "versions": versions(distributions)}
            else:
                reply = _ask(engine, message)
        # Whatever a peer raises is an answer to the driver, which goes on without this engine.
        except Exception as error:
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            reply = {"error": f"{type(error).__name__}: {first}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _ask(engine: Engine | None, message: Mapping[str, Any]) -> dict[str, Any]:
    if engine is None:
        raise RuntimeError("nothing is loaded yet")
    if message["do"] == "run":
        requests = [Request(**request) for request in message["requests"]]
        return asdict(engine.run(requests, message["max_tokens"]))
    if message["do"] == "score":
        return {"regrets": engine.score(Request(**message["request"]), message["ids"])}  # type: ignore[attr-defined]
    return engine.facts()


def _take_stdout() -> TextIO:
    """The pipe to the driver; whatever a library prints goes to standard error from now on."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return pipe


def versions(distributions: Sequence[str]) -> dict[str, str]:
    """Installed versions of packages, those that are not there left out."""
    found = {}
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
