"""OpenVINO GenAI: its continuous-batching pipelines on the CPU, prefix cache on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from PIL import Image

from benchmarks.peers.workers.loop import Answer, Load, Request, serve


class _Times(genai.StreamerBase):  # type: ignore[misc]
    """Takes the time of each token, and the token."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[int] = []
        self.first: float | None = None

    def write(self, token: int | list[int]) -> genai.StreamingStatus:
        """Called by the pipeline with what is new."""
        if self.first is None:
            self.first = time.perf_counter()
        self.ids += [token] if isinstance(token, int) else list(token)
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Called by the pipeline after the last token."""


class OpenVINO:
    """``LLMPipeline`` or ``VLMPipeline`` of an exported folder."""

    def __init__(self, load: Load) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GiB
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = load.context
        precision = {"bfloat16": "bf16", "float32": "f32"}[load.dtype]
        properties: dict[str, Any] = {
            "scheduler_config": scheduler,
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": load.threads,
            "NUM_STREAMS": 1,
        } | load.options
        kind = genai.VLMPipeline if load.vision else genai.LLMPipeline
        self._vision = load.vision
        self._pipe = kind(load.model, "CPU", **properties)
        self._properties = {k: str(v) for k, v in properties.items() if k != "scheduler_config"}

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """One call; a single request is streamed for the time of its first token."""
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        if len(requests) > 1:
            return self._together(requests, config)
        streamer = _Times()
        began = time.perf_counter()
        result = self._one(requests[0], config, streamer)
        total = time.perf_counter() - began
        if streamer.first is None:
            raise RuntimeError("the pipeline streamed no token")
        counted = [result.perf_metrics.get_num_input_tokens()]
        return Answer(streamer.first - began, total, [streamer.ids], counted)

    def _one(self, request: Request, config: Any, streamer: _Times) -> Any:
        if not self._vision:
            tokens = openvino.Tensor(np.array([request.ids], dtype=np.int64))
            return self._pipe.generate(tokens, config, streamer)
        pictures = [np.asarray(Image.open(path).convert("RGB"))[None] for path in request.images]
        tensors = [openvino.Tensor(picture) for picture in pictures]
        return self._pipe.generate(
            request.text, images=tensors, generation_config=config, streamer=streamer
        )

    def _together(self, requests: Sequence[Request], config: Any) -> Answer:
        tokens = np.array([request.ids for request in requests], dtype=np.int64)
        began = time.perf_counter()
        result = self._pipe.generate(openvino.Tensor(tokens), config)
        total = time.perf_counter() - began
        return Answer(total, total, [list(ids) for ids in result.tokens], precise=False)

    def facts(self) -> dict[str, Any]:
        """The properties that were asked for."""
        return {"properties": self._properties}


if __name__ == "__main__":
    serve(OpenVINO, ("openvino-genai", "openvino", "openvino-tokenizers", "optimum-intel"))
