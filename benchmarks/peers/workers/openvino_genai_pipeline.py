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
    """``ContinuousBatchingPipeline``, or ``VLMPipeline`` over one, of an exported folder."""

    def __init__(self, load: Load) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GiB
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = load.context
        precision = {"bfloat16": "bf16", "float32": "f32"}[load.dtype]
        properties: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": load.threads,
            "NUM_STREAMS": 1,
        } | load.options
        self._vision = load.vision
        if load.vision:
            self._pipe = genai.VLMPipeline(
                load.model, "CPU", scheduler_config=scheduler, **properties
            )
        else:
            self._pipe = genai.ContinuousBatchingPipeline(load.model, scheduler, "CPU", properties)
        self._properties = {key: str(value) for key, value in properties.items()}

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
        counted = self._one(requests[0], config, streamer)
        total = time.perf_counter() - began
        if streamer.first is None:
            raise RuntimeError("the pipeline streamed no token")
        return Answer(streamer.first - began, total, [streamer.ids], [counted])

    def _one(self, request: Request, config: Any, streamer: _Times) -> int:
        """Answer one request; returns the tokens of its prompt as the pipeline counts them."""
        if not self._vision:
            self._pipe.generate([_tensor(request)], [config], streamer)
            return len(request.ids)
        pictures = [np.asarray(Image.open(path).convert("RGB"))[None] for path in request.images]
        result = self._pipe.generate(
            request.text,
            images=[openvino.Tensor(picture) for picture in pictures],
            generation_config=config,
            streamer=streamer,
        )
        return int(result.perf_metrics.get_num_input_tokens())

    def _together(self, requests: Sequence[Request], config: Any) -> Answer:
        began = time.perf_counter()
        results = self._pipe.generate(
            [_tensor(request) for request in requests], [config] * len(requests)
        )
        total = time.perf_counter() - began
        ids = [list(result.m_generation_ids[0]) for result in results]
        return Answer(total, total, ids, precise=False)

    def facts(self) -> dict[str, Any]:
        """The properties that were asked for."""
        return {"properties": self._properties}


def _tensor(request: Request) -> Any:
    return openvino.Tensor(np.array([request.ids], dtype=np.int64))


if __name__ == "__main__":
    serve(OpenVINO, ("openvino-genai", "openvino", "openvino-tokenizers", "optimum-intel"))
