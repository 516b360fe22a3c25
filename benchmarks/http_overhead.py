"""What HTTP and scheduling add to the Python API: one client, the same questions, in turns.

One process asks the Python API that it holds itself, and a server beside it that has the same
settings. Both stream; a time is when a piece of text is in the caller's hands.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import torch

from benchmarks.interleave import Sample, interleave
from benchmarks.row import Row, compare
from firstlight import LLM, SamplingParams
from firstlight.bench import server_process
from firstlight.bench.answer import Answer
from firstlight.bench.ask import ask
from firstlight.bench.target import open_client
from firstlight.bench.words import Texts
from firstlight.bench.workload import Prompt, json_bytes
from firstlight.config import BUNDLED_MODEL
from firstlight.demo.synthetic import synthetic_picture

TOKENS = 48
"""Of every answer. No end token comes before, so that each of them is text."""
TTFT_LIMIT_MS, ITL_LIMIT_MS = 10.0, 1.0
IDLE_S = 0.1
"""Before each turn, so that the other side's threads have gone to sleep."""

Messages = list[dict[str, Any]]


def question(round_: int, picture: bool) -> Messages:
    """One that was not asked before: no cache has it."""
    chance = random.Random(f"overhead {round_}")
    text = "What is in the picture?" if picture else Texts(2.0).make(80, chance)
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if picture:
        file = io.BytesIO()
        synthetic_picture(224, 224, f"overhead {round_}").save(file, "PNG")
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    return [{"role": "user", "content": content}]


class Sides:
    """Asks both sides the question of the round, and keeps what came when.

    Args:
        picture: whether there is one in every question.
    """

    def __init__(self, llm: LLM, client: httpx2.AsyncClient, runner: asyncio.Runner,
                 picture: bool) -> None:  # fmt: skip
        self._llm = llm
        self._client = client
        self._runner = runner
        self._picture = picture
        self.answers: dict[str, list[Answer]] = {"ours": [], "theirs": []}

    def python(self) -> float:
        """Seconds to the first text from :meth:`LLM.stream_chat`."""
        messages = self._messages("theirs")
        params = SamplingParams(temperature=0, min_tokens=TOKENS, max_tokens=TOKENS)
        pieces, tokens = [], 0
        due = time.perf_counter()
        for event in self._llm.stream_chat(messages, params):
            if isinstance(event, str):
                pieces.append(time.perf_counter())
            else:
                tokens = event.usage.completion_tokens
        answer = Answer(
            due=due,
            sent=due,
            ended=time.perf_counter(),
            max_tokens=TOKENS,
            pieces=tuple(pieces),
            completion_tokens=tokens,
        )
        return self._keep("theirs", answer)

    def http(self) -> float:
        """Seconds to the first text from the server."""
        fields: dict[str, Any] = {
            "max_tokens": TOKENS,
            "min_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body = json_bytes(fields | {"messages": self._messages("ours")})
        prompt = Prompt((body,), TOKENS)
        return self._keep(
            "ours", self._runner.run(ask(self._client, prompt, clock=time.perf_counter))
        )

    def further(self, name: str, rounds: int) -> Sample:
        """Seconds of a token after the first, on average in each of the last rounds."""
        return Sample(tuple(answer.tpot or 0.0 for answer in self.answers[name][-rounds:]))

    def pieces(self) -> str:
        """How many pieces of text an answer had on either side."""
        counts = [statistics.median(len(a.pieces) for a in some) for some in self.answers.values()]
        return f"{counts[0]:g} and {counts[1]:g} pieces of text in {TOKENS} tokens"

    def _messages(self, name: str) -> Messages:
        made = question(len(self.answers[name]), self._picture)
        time.sleep(IDLE_S)
        return made

    def _keep(self, name: str, answer: Answer) -> float:
        if answer.error is not None:
            raise RuntimeError(f"{answer.error}: {answer.detail}")
        if answer.completion_tokens != TOKENS or len(answer.pieces) < TOKENS // 2:
            found = f"{answer.completion_tokens} tokens in {len(answer.pieces)} pieces"
            raise RuntimeError(f"{found}; {TOKENS} were asked for, each of them text")
        self.answers[name].append(answer)
        return answer.ttft


def added(name: str, samples: dict[str, Sample], limit: float, note: str) -> Row:
    """The median of the rounds' own differences."""
    pairs = zip(samples["ours"].seconds, samples["theirs"].seconds, strict=True)
    each = [ours - theirs for ours, theirs in pairs]
    ms = round(statistics.median(each) * 1e3, 4)
    spread = f"{min(each) * 1e3:.2f} to {max(each) * 1e3:.2f}"
    return Row(name, ours=ms, limit=limit, note=f"{spread} ms; {note}")


@contextmanager
def asking(dtype: str) -> Iterator[tuple[LLM, httpx2.AsyncClient, asyncio.Runner]]:
    """Both sides with the same settings."""
    options = ["--dtype", dtype, "--threads", str(torch.get_num_threads())]
    llm = LLM(dtype=dtype)
    with server_process(BUNDLED_MODEL, options) as url, asyncio.Runner() as runner:
        client = open_client(url, None, timeout=60.0, most=1)
        try:
            yield llm, client, runner
        finally:
            runner.run(client.aclose())


def overhead_rows(dtype: str, *, rounds: int) -> Iterator[Row]:
    """First token and further tokens of a text, and of a picture and a text."""
    with asking(dtype) as (llm, client, runner):
        for kind, picture in (("text", False), ("picture", True)):
            sides = Sides(llm, client, runner, picture)
            contestants = {"ours": sides.http, "theirs": sides.python}
            first = interleave(contestants, rounds=rounds)
            further = {name: sides.further(name, rounds) for name in first}
            note = f"{rounds} rounds; {sides.pieces()}"
            for what, samples, limit in (
                ("first token", first, TTFT_LIMIT_MS),
                ("further token", further, ITL_LIMIT_MS),
            ):
                yield compare(f"{what} over HTTP, {kind}, {dtype}", samples, note="Python API")
                yield added(f"HTTP adds to a {what}, {kind}, {dtype}", samples, limit, note)
