"""A text decoder's logits at every position of a text, from the modules that serve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from firstlight.attention import AttentionLayer
from firstlight.config import EngineConfig
from firstlight.models.fuse import Kit, fuse_model
from firstlight.models.loading import load_model
from firstlight.native import WeightFormat, open_kernels


@dataclass(frozen=True, slots=True)
class Variant:
    """How a model is computed.

    Attributes:
        dtype: of activations, and of weights where they have no format.
        compiled: on the compiled kernels; else transformers' modules as they are.
        rounds_rows: whether inputs of layers with codes are rounded to 8 bits.
    """

    name: str
    dtype: str
    compiled: bool = True
    format: WeightFormat | None = None
    rounds_rows: bool = False


EXACT: Final = Variant("float32", "float32", compiled=False)
PLAIN: Final = Variant("bfloat16", "bfloat16", compiled=False)
SERVED: Final = (
    Variant("none", "bfloat16"),
    Variant("int8", "bfloat16", format=WeightFormat.INT8, rounds_rows=True),
    Variant("int8, inputs as they are", "bfloat16", format=WeightFormat.INT8),
    Variant("int4", "bfloat16", format=WeightFormat.INT4, rounds_rows=True),
    Variant("int4, inputs as they are", "bfloat16", format=WeightFormat.INT4),
)
"""By the names that ``quantization`` gives them, each with and without rounded inputs."""


class WholeText:
    """Stands for paged attention: one text, whose every row is somebody's last."""

    def __init__(self, rows: int) -> None:
        self._rows = torch.arange(rows)

    def last_rows(self) -> Tensor:
        """int64 ``[T]``: all of them."""
        return self._rows

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention ``[T, heads, head_dim]``; windows are not served.

        Raises:
            ValueError: the layer has a window that is shorter than the text.
        """
        if layer.window is not None and layer.window < len(self._rows):
            raise ValueError(f"layer {layer.index} has a window of {layer.window} tokens")
        queries, keys, values = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=layer.scale, enable_gqa=True
        )
        return out[0].transpose(0, 1).contiguous()

    attend_last = attend


@dataclass(frozen=True, slots=True)
class _Inputs:
    embeds: Tensor
    positions: Tensor
    planes: Mapping[str, Tensor]
    attention: WholeText


class Forced:
    """One variant of a text decoder, given whole texts.

    Raises:
        NativeUnavailableError: the variant is compiled, and this machine has no compiled kernels.
    """

    def __init__(self, model: Path, variant: Variant) -> None:
        cache = EngineConfig().cache_dir
        loaded = load_model(model, dtype=variant.dtype, cache_dir=cache)
        self.variant = variant
        self.tokenizer = loaded.tokenizer
        self._adapter = loaded.adapter
        if variant.compiled:
            kit = Kit(open_kernels(cache), variant.format, rounds_rows=variant.rounds_rows)
            fuse_model(self._adapter, kit)
        self._body = self._adapter.body()

    @torch.no_grad()
    def log_probabilities(self, ids: Sequence[int]) -> Tensor:
        """float32 ``[T, vocabulary]``: of the token after each of ``ids``."""
        adapter, n = self._adapter, len(ids)
        rows = adapter.text_rows(torch.tensor(ids))
        positions = torch.arange(n).expand(adapter.position_rank, n).contiguous()
        hidden = self._body(_Inputs(rows, positions, {}, WholeText(n)))
        return adapter.logits(hidden).float().log_softmax(-1)
