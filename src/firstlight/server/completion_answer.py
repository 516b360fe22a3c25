"""OpenAI's forms of a text completion, whole and in chunks, for one prompt or several."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from firstlight.core.output import Completion, TokenLogprob
from firstlight.engine.aio import Delta
from firstlight.server.answers import Answered, new_id, side_by_side
from firstlight.server.schemas.completion import CompletionRequest
from firstlight.server.sse import Chunk
from firstlight.server.timings import timings_of
from firstlight.server.token_text import Place, TokenText
from firstlight.server.usage import total_usage, usage_of, usage_so_far


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """The answers to all prompts of a request; choice ``p * n + i`` is answer i to prompt p.

    Attributes:
        answered: one per prompt.
        echoes: what the answers to each prompt begin with.
        model: the name that stands in it.
        timed: whether it has ``timings``, the first prompt's.
    """

    request: CompletionRequest
    answered: list[Answered]
    echoes: list[str]
    tokens: TokenText
    model: str
    timed: bool
    id: str = field(default_factory=lambda: new_id("cmpl"))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        """All at once; once all choices are complete."""
        choices = [
            (echo, c)
            for echo, answered in zip(self.echoes, self.answered, strict=True)
            for c in answered.whole
        ]
        answer = self._frame()
        answer["choices"] = [
            self._choice(i, echo + c.text, c.logprobs or (), Place())
            | {"finish_reason": c.finish_reason.value}
            for i, (echo, c) in enumerate(choices)
        ]
        answer["usage"] = self._usage()
        return answer | self._timings()

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The text of each choice with its end; then the usage, if asked for."""
        options = self.request.stream_options
        continuous = options is not None and bool(options.continuous_usage_stats)
        include = options is not None and bool(options.include_usage)
        places: dict[int, Place] = {}
        echoes = {i: self.echoes[i // self.request.choices] for i in range(self._total)}
        left = self._total
        async with aclosing(side_by_side(self.answered)) as deltas:
            async for p, delta in deltas:
                index = p * self.request.choices + delta.index
                echo = echoes.pop(index, "")
                if not (echo or delta.text or delta.logprobs or delta.completion):
                    continue
                piece = self._piece(index, delta, places)
                piece["text"] = echo + delta.text
                chunk = self._frame() | {"choices": [piece]}
                if continuous:
                    stream, n = self.answered[p].stream, sum(self.answered[p].tokens)
                    chunk["usage"] = usage_so_far(stream, n)
                elif include:
                    chunk["usage"] = None
                left -= delta.completion is not None
                yield chunk | self._timings() if not (left or include) else chunk
        if include:
            yield self._frame() | {"choices": [], "usage": self._usage()} | self._timings()

    @property
    def _total(self) -> int:
        return len(self.answered) * self.request.choices

    def _piece(self, index: int, delta: Delta, places: dict[int, Place]) -> dict[str, Any]:
        place = places.setdefault(index, Place())
        choice = self._choice(index, delta.text, delta.logprobs, place)
        if delta.completion is not None:
            choice["finish_reason"] = delta.completion.finish_reason.value
        return choice

    def _choice(
        self, index: int, text: str, logprobs: tuple[TokenLogprob, ...], place: Place
    ) -> dict[str, Any]:
        asked = self.request.logprobs is not None
        return {
            "index": index,
            "text": text,
            "logprobs": self.tokens.completion(logprobs, place) if asked else None,
            "finish_reason": None,
        }

    def _usage(self) -> dict[str, Any]:
        return total_usage([usage_of(answered.whole) for answered in self.answered])

    def _frame(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def _timings(self) -> dict[str, Any]:
        first: Completion | None = self.answered[0].completions[0]
        if not self.timed or first is None:
            return {}
        return {"timings": timings_of(self.answered[0].stream.waits, first)}
