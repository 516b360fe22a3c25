"""OpenAI's forms of an answer to a chat, whole and in chunks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from firstlight.core.output import Completion
from firstlight.engine.aio import Delta
from firstlight.engine.tools.forms import ChatForm
from firstlight.engine.tools.voice import Voice
from firstlight.server.answers import Answered, new_id
from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.sse import Chunk
from firstlight.server.timings import timings_of
from firstlight.server.token_text import TokenText
from firstlight.server.usage import usage_of, usage_so_far


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer to a chat.

    Attributes:
        form: tells content from thoughts and calls.
        model: the name that stands in it.
        timed: whether it has ``timings``.
    """

    request: ChatRequest
    answered: Answered
    tokens: TokenText
    form: ChatForm
    model: str
    timed: bool
    id: str = field(default_factory=lambda: new_id("chatcmpl"))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        """All at once; once all choices are complete."""
        completions = self.answered.whole
        answer = self._frame("chat.completion")
        answer["choices"] = [self._choice(i, c) for i, c in enumerate(completions)]
        answer["usage"] = self._usage()
        return answer | self._timings()

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """In order: the role of each choice, its text, its end; then the usage, if asked for."""
        options = self.request.stream_options
        continuous = options is not None and bool(options.continuous_usage_stats)
        include = options is not None and bool(options.include_usage)
        voices: dict[int, Voice] = {}
        async with aclosing(self.answered.deltas()) as deltas:
            async for delta in deltas:
                for choice in self._pieces(delta, voices):
                    chunk = self._frame("chat.completion.chunk") | {"choices": [choice]}
                    if continuous:
                        stream, n = self.answered.stream, sum(self.answered.tokens)
                        chunk["usage"] = usage_so_far(stream, n)
                    elif include:
                        chunk["usage"] = None
                    last = choice["finish_reason"] is not None and self.answered.complete
                    yield chunk | self._timings() if last and not include else chunk
        if include:
            usage = {"choices": [], "usage": self._usage()}
            yield self._frame("chat.completion.chunk") | usage | self._timings()

    def _pieces(self, delta: Delta, voices: dict[int, Voice]) -> Iterator[dict[str, Any]]:
        """The choices of the chunks that one delta becomes."""
        if delta.index not in voices:
            voices[delta.index] = self._voice()
            yield self._piece(delta.index, {"role": "assistant", "content": ""})
        voice = voices[delta.index]
        done = delta.completion
        pieces = [*voice.push(delta.text), *(voice.finish() if done is not None else ())]
        if delta.logprobs and not pieces:
            pieces = [{"content": ""}]
        for i, changed in enumerate(pieces):
            piece = self._piece(delta.index, changed)
            if delta.logprobs and i == 0:
                piece["logprobs"] = {"content": self.tokens.chat(delta.logprobs), "refusal": None}
            yield piece
        if done is not None:
            reason = voice.finish_reason(done.finish_reason)
            yield self._piece(delta.index, {}) | {"finish_reason": reason}

    def _voice(self) -> Voice:
        return Voice(self.form.reader(), self.form.tools)

    def _piece(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _choice(self, index: int, completion: Completion) -> dict[str, Any]:
        logprobs = None
        if completion.logprobs is not None:
            logprobs = {"content": self.tokens.chat(completion.logprobs), "refusal": None}
        voice = self._voice()
        voice.push(completion.text)
        voice.finish()
        return {
            "index": index,
            "message": voice.message(),
            "logprobs": logprobs,
            "finish_reason": voice.finish_reason(completion.finish_reason),
        }

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self.answered.whole)
        if self.form.thinks:
            n = sum(self.form.thought(c, self.tokens.join) for c in self.answered.whole)
            usage["completion_tokens_details"] = {"reasoning_tokens": n}
        return usage

    def _timings(self) -> dict[str, Any]:
        first = self.answered.completions[0]
        if not self.timed or first is None:
            return {}
        return {"timings": timings_of(self.answered.stream.waits, first)}
