"""The one attention function that firstlight registers with transformers.

A decoder set to ``"firstlight"`` calls :func:`attention` in every layer, after its own projections
and rotary embedding. The engine's handle travels down as the keyword argument ``firstlight``. No
mask function is registered under the name: transformers then builds no mask tensor at all, and
causality, pages, windows and media blocks are the handle's business. For that reason no
``block_sequence_ids`` arrive either; a layer that passes them on by itself is refused, since blocks
come to the handle with the batch.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from firstlight.attention import AttentionLayer
from firstlight.errors import ModelLoadError

NAME = "firstlight"

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "softcap": (None, 0, 0.0),
    "s_aux": (None,),
    "sinks": (None,),
    "position_bias": (None,),
    "block_sequence_ids": (None,),
    "is_causal": (None, True),
}
"""Keyword arguments that change what attention computes, with the values that do not."""


class AttentionContext(Protocol):
    """What the engine gives a decoder call: it holds the KV pool and the batch's metadata."""

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v of this step's tokens and attend over each request's context.

        Args:
            layer: its index, the scale of its scores, its window.
            q: ``[T, query heads, head_dim]``, rotary embedding applied; may be a strided view.
            k: ``[T, kv heads, head_dim]``, rotary embedding applied.
            v: ``[T, kv heads, v_head_dim]``.

        Returns:
            ``[T, query heads, v_head_dim]``.
        """
        ...


def install(decoder: nn.Module) -> None:
    """Register the function with transformers (once is enough) and set every layer to it.

    It is set on the configurations that the decoder's modules read, not through transformers'
    switch: that one reads a model's source and silently leaves alone what it does not recognise.
    A layer that bypasses the interface is found by running it (:func:`probe_layers`).
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)
    for module in decoder.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = NAME  # type: ignore[union-attr]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    firstlight: AttentionContext | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface over an :class:`AttentionContext`.

    Args:
        module: the attention layer; its ``layer_idx`` names the layer.
        query: ``[1, heads, T, D]``; ``key`` and ``value`` likewise with the KV heads.
        attention_mask: must be None.
        firstlight: the engine's handle, given to the decoder call by keyword.

    Returns:
        ``[1, T, heads, D]`` and None (no weights are returned).

    Raises:
        ModelLoadError: no handle was given, or the layer asks for what the handle cannot do.
    """
    who = type(module).__name__
    if firstlight is None:
        raise ModelLoadError(
            f"{who} was called without an attention context; call the decoder with "
            f"`{NAME}=...`, and see that it passes its keyword arguments on to the layers"
        )
    if attention_mask is not None:
        raise ModelLoadError(
            f"{who} brings an attention mask of its own {tuple(attention_mask.shape)}, "
            "which paged attention does not take"
        )
    _refuse_unknown_semantics(who, kwargs)
    layer = AttentionLayer(
        index=int(module.layer_idx),  # type: ignore[arg-type]
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=sliding_window,
    )
    out = firstlight.attend(
        layer, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    )
    return out[None], None


def _refuse_unknown_semantics(who: str, kwargs: dict[str, Any]) -> None:
    for name, neutral in _NEUTRAL.items():
        value = kwargs.get(name)
        # `in` would compare tensors elementwise; identity and type come first.
        if value is None or any(type(value) is type(n) and value == n for n in neutral):
            continue
        raise ModelLoadError(
            f"{who} asks attention for {name!r}, which paged attention does not support"
        )
