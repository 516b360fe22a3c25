"""llama.cpp through llama-cpp-python, the model file as it is."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.peers.workers.loop import Answer, Load, Request, serve

_BATCH = 2048


class LlamaCpp:
    """``Llama`` for one request at a time; a context of its own with many sequences for several."""

    def __init__(self, load: Load) -> None:
        threads = {"n_threads": load.threads, "n_threads_batch": load.threads}
        settings: dict[str, Any] = {"n_ctx": load.context, "n_batch": _BATCH, "verbose": False}
        self._threads = threads
        self._llama = llama_cpp.Llama(load.model, **(settings | threads | load.options))
        self._together: _Sequences | None = None

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """One request by ``Llama.generate``; several decoded in one batch, token by token."""
        counts = [len(request.ids) for request in requests]
        began = time.perf_counter()
        if len(requests) == 1:
            steps = self._one(requests[0].ids)
        else:
            if self._together is None:
                self._together = _Sequences(self._llama, self._threads)
                began = time.perf_counter()
            steps = self._together.generate([request.ids for request in requests])
        columns = [next(steps)]
        first = time.perf_counter()
        columns += islice(steps, max_tokens - 1)
        total = time.perf_counter() - began
        ids = [list(answer) for answer in zip(*columns, strict=True)]
        return Answer(first - began, total, ids, counts)

    def _one(self, ids: Sequence[int]) -> Iterator[list[int]]:
        for token in self._llama.generate(list(ids), temp=0.0, top_k=1):
            yield [token]

    def facts(self) -> dict[str, Any]:
        """What the library was built with."""
        return {"system": llama_cpp.llama_print_system_info().decode()}


class _Sequences:
    """Greedy decoding of several sequences in one batch: what llama.cpp's own server does."""

    def __init__(self, llama: Any, threads: dict[str, int], n: int = 8, context: int = 512) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n * context
        params.n_seq_max = n
        params.n_batch = _BATCH
        params.n_threads = threads["n_threads"]
        params.n_threads_batch = threads["n_threads_batch"]
        self._context = llama_cpp.llama_init_from_model(llama.model, params)
        if not self._context:
            raise MemoryError(f"no context of {n} sequences")
        self._vocabulary = llama.n_vocab()
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)

    def generate(self, prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """The next token of every sequence, for ever."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        places = [len(prompt) for prompt in prompts]
        self._fill([(s, 0, list(prompt)) for s, prompt in enumerate(prompts)])
        while True:
            tokens = self._decode(len(prompts))
            yield tokens
            self._fill([(s, places[s], [token]) for s, token in enumerate(tokens)])
            places = [place + 1 for place in places]

    def _fill(self, parts: Sequence[tuple[int, int, list[int]]]) -> None:
        """Sequence, position of its first token, tokens; logits are wanted of the last one."""
        batch, at = self._batch, 0
        self._last: list[int] = []
        for sequence, start, tokens in parts:
            for offset, token in enumerate(tokens):
                batch.token[at] = token
                batch.pos[at] = start + offset
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = offset == len(tokens) - 1
                at += 1
            self._last.append(at - 1)
        batch.n_tokens = at

    def _decode(self, n: int) -> list[int]:
        status = llama_cpp.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status} for {n} sequences")
        tokens = []
        for at in self._last:
            logits = llama_cpp.llama_get_logits_ith(self._context, at)
            row = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * self._vocabulary)).contents
            tokens.append(int(np.frombuffer(row, dtype=np.float32).argmax()))
        return tokens


if __name__ == "__main__":
    serve(LlamaCpp, ("llama-cpp-python",))
