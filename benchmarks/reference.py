"""transformers on the same weights: what firstlight is measured against."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class Reference:
    """A transformers model of a checkpoint folder, generating greedily with its own KV cache."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        import transformers

        config = json.loads((path / "config.json").read_text())
        cls = getattr(transformers, config["architectures"][0])
        self.model: Any = cls.from_pretrained(path, dtype=dtype, attn_implementation="sdpa").eval()
        # Both sides generate a fixed number of tokens, whatever the model says.
        self.model.generation_config.eos_token_id = None
        self._image_token_id = config.get("image_token_id")

    def inputs(
        self, ids: Sequence[int], tensors: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Arguments of ``generate`` for one prompt, its pictures' processor tensors included."""
        tokens = torch.tensor([list(ids)])
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if tensors:
            inputs |= dict(tensors)
            inputs["mm_token_type_ids"] = (tokens == self._image_token_id).int()
        return inputs

    @torch.inference_mode()
    def generate(self, inputs: Mapping[str, Tensor], n: int) -> tuple[list[int], list[float]]:
        """``n`` greedy tokens and the time of each, in seconds; the first one is the prefill's."""
        times: list[float] = []

        def stamp(input_ids: Tensor, *_: object, **__: object) -> Tensor:
            times.append(time.perf_counter())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

        began = time.perf_counter()
        out = self.model.generate(
            **inputs, max_new_tokens=n, do_sample=False, stopping_criteria=[stamp]
        )
        ids = out[0, inputs["input_ids"].shape[1] :].tolist()
        edges = [began, *times]
        return ids, [b - a for a, b in itertools.pairwise(edges)]
