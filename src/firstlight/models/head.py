"""Whether the logits that are sampled from are those of the model's own forward.

Some models scale or cap the scores after the LM head. An adapter that leaves this out still gives
plausible tokens, so the two are compared once, at load, on hidden states that are given to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from firstlight.errors import ModelLoadError, ProbeError
from firstlight.models.adapter import Adapter
from firstlight.models.probe import PROBE_ERRORS, check_tensor

_SIZES = (1.0, 10.0, 100.0)
"""Sizes of the hidden states: a cap shows on large scores only."""

_TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-4}
_COARSE = 5e-2
"""For half precisions: the model may scale in them, the adapter in float32."""

_SCALES = ("logits_scaling", "logit_scale")
"""Fields by which known families scale their scores, neutral at 1."""


def probe_head(adapter: Adapter) -> None:
    """Compare ``adapter.logits`` with the model's own forward behind a stand-in for the decoder.

    A model whose forward does not run that way is judged by its configuration alone.

    Raises:
        ProbeError: other values, or not ``[n, vocab_size]``.
        ModelLoadError: nothing could be compared, the configuration scales the scores, and the
            adapter does not say how.
    """
    hidden = _hidden(adapter)
    ours = _logits(adapter, hidden)
    own = _own_logits(adapter, hidden)
    if own is None:
        _refuse_scales(adapter)
    elif (difference := _difference(ours, own, adapter.dtype)) is not None:
        who = type(adapter).__name__
        raise ProbeError(
            f"{who}.logits differs from the forward of {adapter.architecture} by up to "
            f"{difference:.2g} for the same hidden states; apply in {who}.logits what the model "
            "does to the scores after its LM head"
        )


def _hidden(adapter: Adapter) -> Tensor:
    """``[n, hidden_size]``, seeded, one row per size."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(_SIZES), adapter.hidden_size, generator=generator)
    return (rows * torch.tensor(_SIZES)[:, None]).to(adapter.device, adapter.dtype)


def _logits(adapter: Adapter, hidden: Tensor) -> Tensor:
    who, expected = type(adapter).__name__, (len(hidden), adapter.vocab_size)
    try:
        with torch.no_grad():
            ours = adapter.logits(hidden)
    except PROBE_ERRORS as error:
        raise ProbeError(
            f"{who}.logits fails on {tuple(hidden.shape)} hidden states: "
            f"{type(error).__name__}: {error}"
        ) from error
    check_tensor(ours, f"{who}.logits gives")
    if tuple(ours.shape) != expected:
        raise ProbeError(
            f"{who}.logits gives {tuple(ours.shape)} for {tuple(hidden.shape)} hidden states; "
            f"logits are (rows, vocab_size) = {expected}"
        )
    return ours


def _own_logits(adapter: Adapter, hidden: Tensor) -> Tensor | None:
    """Those of the model's forward, or None if it cannot be run with a stand-in."""
    ids = torch.zeros(1, len(hidden), dtype=torch.int64, device=adapter.device)
    if adapter.media_token_id == 0:
        ids += 1
    try:
        with _standing_in(adapter.decoder, hidden) as calls, torch.no_grad():
            logits = adapter.model(input_ids=ids).logits
    # Whatever a forward of somebody's own may raise, it only means that it tells nothing.
    except Exception:
        return None
    same = isinstance(logits, Tensor) and tuple(logits.shape[:2]) == (1, len(hidden))
    return logits[0] if calls and same else None


@contextmanager
def _standing_in(decoder: Any, hidden: Tensor) -> Iterator[list[int]]:
    """``decoder`` returns ``hidden`` inside of the block; yields a list with an entry per call."""
    from transformers.modeling_outputs import MoeModelOutputWithPast

    calls: list[int] = []
    before = vars(decoder).get("forward")

    def forward(*args: object, **kwargs: object) -> Any:
        calls.append(1)
        return MoeModelOutputWithPast(last_hidden_state=hidden[None])

    decoder.forward = forward
    try:
        yield calls
    finally:
        if before is None:
            del decoder.forward
        else:
            decoder.forward = before


def _difference(ours: Tensor, own: Tensor, dtype: torch.dtype) -> float | None:
    """The largest difference, if it is beyond rounding of the row's largest score."""
    if ours.shape != own.shape:
        return float("inf")
    ours, own = ours.float(), own.float()
    apart = torch.where(ours == own, 0, (ours - own).abs())
    room = _TOLERANCES.get(dtype, _COARSE) * own.abs().amax(-1, keepdim=True)
    return None if bool((apart <= room).all()) else float(apart.max())


def _refuse_scales(adapter: Adapter) -> None:
    if type(adapter).logits is not Adapter.logits:
        return
    for name in _SCALES:
        value = getattr(adapter.text_config, name, None)
        if value not in (None, 1):
            raise ModelLoadError(
                f"the configuration of {adapter.architecture} has {name} = {value}, which "
                f"{type(adapter).__name__}.logits does not apply; override it"
            )
