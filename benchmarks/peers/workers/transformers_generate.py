"""transformers' ``generate``; also the reference that says how good another engine's tokens are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from torch import Tensor

from benchmarks.peers.workers.loop import Answer, Load, Request, serve


class Transformers:
    """A model of a checkpoint folder with its own KV cache and image processor."""

    def __init__(self, load: Load) -> None:
        torch.set_num_threads(load.threads)
        path = Path(load.model)
        config = json.loads((path / "config.json").read_text())
        cls = getattr(transformers, config["architectures"][0])
        dtype = getattr(torch, load.dtype)
        self._model: Any = cls.from_pretrained(path, dtype=dtype, attn_implementation="sdpa").eval()
        self._model.generation_config.eos_token_id = None
        self._image_token = config.get("image_token_id")
        self._dtype = dtype
        self._processor: Any = None
        if load.vision:
            self._processor = transformers.AutoImageProcessor.from_pretrained(path)

    @torch.inference_mode()
    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """One call of ``generate``; prompts of a call must be of one length."""
        times: list[float] = []

        def stamp(input_ids: Tensor, *_: object, **__: object) -> Tensor:
            times.append(time.perf_counter())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

        began = time.perf_counter()
        inputs = self._inputs(requests)
        out = self._model.generate(
            **inputs, max_new_tokens=max_tokens, do_sample=False, stopping_criteria=[stamp]
        )
        total = time.perf_counter() - began
        length = inputs["input_ids"].shape[1]
        ids = out[:, length:].tolist()
        return Answer(times[0] - began, total, ids, [length] * len(requests))

    @torch.inference_mode()
    def score(self, request: Request, ids: list[int]) -> list[float]:
        """How far below the best logit each token of an answer lies, after all before it."""
        inputs = self._inputs([request])
        n = inputs["input_ids"].shape[1]
        whole = torch.cat([inputs["input_ids"], torch.tensor([ids])], dim=1)
        inputs |= {"input_ids": whole, "attention_mask": torch.ones_like(whole)}
        if "mm_token_type_ids" in inputs:
            inputs["mm_token_type_ids"] = (whole == self._image_token).int()
        logits = self._model(**inputs).logits[0, n - 1 : -1].float()
        chosen = logits.gather(1, torch.tensor(ids)[:, None])[:, 0]
        regrets: list[float] = (logits.max(dim=1).values - chosen).tolist()
        return regrets

    def _inputs(self, requests: Sequence[Request]) -> dict[str, Tensor]:
        if len({len(request.ids) for request in requests}) != 1:
            raise ValueError("prompts of different lengths in one call of generate")
        if not requests[0].images:
            tokens = torch.tensor([request.ids for request in requests])
            return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if len(requests) != 1:
            raise ValueError("several requests with pictures in one call")
        return self._with_pictures(requests[0])

    def _with_pictures(self, request: Request) -> dict[str, Tensor]:
        pictures = [Image.open(path).convert("RGB") for path in request.images]
        made = self._processor(images=pictures, return_tensors="pt")
        merge = self._processor.merge_size**2
        counts = iter((made["image_grid_thw"].prod(dim=1) // merge).tolist())
        ids: list[int] = []
        for token in request.ids:
            ids += [token] * (next(counts) if token == self._image_token else 1)
        tokens = torch.tensor([ids])
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "mm_token_type_ids": (tokens == self._image_token).int(),
            "pixel_values": made["pixel_values"].to(self._dtype),
            "image_grid_thw": made["image_grid_thw"],
        }

    def facts(self) -> dict[str, Any]:
        """Bytes of the parameters."""
        parameters = sum(p.numel() * p.element_size() for p in self._model.parameters())
        return {"parameter_bytes": parameters}


if __name__ == "__main__":
    serve(Transformers, ("torch", "transformers"))
