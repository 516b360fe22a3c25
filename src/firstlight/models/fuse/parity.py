"""Does a faster module compute what the module it replaces computes?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.attention import AttentionLayer
from firstlight.models.attention_hook import NAME

_ROWS = 5
# bfloat16 keeps 8 bits; two orders of the same sums differ by a few roundings of the largest value.
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2, torch.float16: 5e-3}


class Recorder:
    """Stands for paged attention: mixes its inputs so that each of them shows in the output.

    Args:
        last: the last row of each request of the batch that it plays.
        device: where the batch lies.
    """

    def __init__(self, last: Sequence[int] = (), device: torch.device | str | None = None) -> None:
        self.calls: list[AttentionLayer] = []
        self._last = list(last)
        self._device = device

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A result for every row."""
        self.calls.append(layer)
        keys, values = _mixed(q, k, v)
        return (q * keys + values).contiguous()

    def attend_last(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same result for the last rows alone, whose queries these are."""
        self.calls.append(layer)
        keys, values = _mixed(q, k, v)
        return (q * keys[self._last] + values[self._last]).contiguous()

    def last_rows(self) -> Tensor:
        """int64 ``[B]``."""
        return torch.tensor(self._last, device=self._device)


def _mixed(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    groups = q.shape[1] // k.shape[1]
    keys = k.roll(1, dims=1).repeat_interleave(groups, 1)
    return keys, v.roll(1, dims=0).repeat_interleave(groups, 1)


def module_parity(
    old: nn.Module, new: nn.Module, hidden_size: int, like: Tensor | None = None
) -> str | None:
    """None if equal, else what differs.

    Args:
        like: has the dtype of the input; None takes that of the module's parameters.
    """
    x = random_like(next(old.parameters()) if like is None else like, 1, _ROWS, hidden_size)
    return compare(lambda: old(x), lambda: new(x))


Rotary = tuple[Tensor, Tensor]
"""Cosines and sines ``[1, rows, head_dim]`` of the decoder's own rotary embedding."""


def heard(attention: nn.Module, hidden_size: int, rotary: Rotary) -> AttentionLayer:
    """What a layer asks attention for, by listening to one call."""
    recorder = Recorder()
    _call(attention, _input(attention, hidden_size, rotary), rotary, recorder)
    return recorder.calls[0]


def attention_parity(
    old: nn.Module, new: nn.Module, hidden_size: int, rotary: Rotary
) -> str | None:
    """None if equal in output and in what is asked of attention, else what differs."""
    x = _input(old, hidden_size, rotary)
    ours, theirs = Recorder(), Recorder()
    found = compare(lambda: _call(old, x, rotary, theirs), lambda: _call(new, x, rotary, ours))
    if found is None and theirs.calls != ours.calls:
        return f"it asks attention for {theirs.calls}, not {ours.calls}"
    return found


def _input(module: nn.Module, hidden_size: int, rotary: Rotary) -> Tensor:
    return random_like(next(module.parameters()), 1, rotary[0].shape[-2], hidden_size)


def _call(module: nn.Module, x: Tensor, rotary: Rotary, recorder: Recorder) -> Tensor:
    context: dict[str, Any] = {NAME: recorder}
    out: Tensor = module(
        hidden_states=x, position_embeddings=rotary, attention_mask=None, **context
    )[0]
    return out


def compare(old: Callable[[], Tensor], new: Callable[[], Tensor]) -> str | None:
    """None if two results are equal within the dtype's roundings, else what differs."""
    want, got = old(), new()
    if want.shape != got.shape:
        return f"shape {tuple(want.shape)} against {tuple(got.shape)}"
    difference = (want.double() - got.double()).abs().max() / want.double().abs().max()
    worst, allowed = float(difference), _TOLERANCE[want.dtype]
    return None if worst <= allowed else f"outputs differ by {worst:.1e}, allowed is {allowed:.0e}"


def random_like(like: Tensor, *shape: int) -> Tensor:
    """Normal values of a shape, always the same, in the dtype and on the device of ``like``."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(like)
