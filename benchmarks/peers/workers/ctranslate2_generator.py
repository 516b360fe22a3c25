"""CTranslate2's ``Generator`` over a converted folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
from tokenizers import Tokenizer

from benchmarks.peers.workers.loop import Answer, Load, Request, serve


class CTranslate2:
    """A generator; it has no cache across calls."""

    def __init__(self, load: Load) -> None:
        self._type = load.options.get("compute_type", "default")
        self._generator = ctranslate2.Generator(
            load.model, device="cpu", intra_threads=load.threads, compute_type=self._type
        )
        tokenizer = Tokenizer.from_file(str(Path(load.model) / "tokenizer.json"))
        self._token = tokenizer.id_to_token

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """One call of ``generate_batch``."""
        prompts = [[self._token(i) for i in request.ids] for request in requests]
        first: list[float] = []

        def stamp(_: object) -> bool:
            if not first:
                first.append(time.perf_counter())
            return False

        began = time.perf_counter()
        results = self._generator.generate_batch(
            prompts,
            max_length=max_tokens,
            min_length=max_tokens,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=[],
            callback=stamp,
        )
        total = time.perf_counter() - began
        ids = [list(result.sequences_ids[0]) for result in results]
        return Answer(first[0] - began, total, ids, [len(prompt) for prompt in prompts])

    def facts(self) -> dict[str, Any]:
        """The type that it computes in."""
        return {"compute_type": self._generator.compute_type}


if __name__ == "__main__":
    serve(CTranslate2, ("ctranslate2",))
