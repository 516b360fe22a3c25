"""Which positions of the state the rows of a batch may see: what is not, must not matter."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench
from firstlight.graphs.proof.contents import Batch


def by_position(bench: Bench, held: Tensor) -> Tensor | None:
    """A snapshot of one tensor as ``[watched, unit_tokens, n]``; None if it is not by position."""
    tokens = bench.memory.unit_tokens
    if tokens == 1:
        return held.reshape(held.shape[0], 1, -1)
    if held.dim() < 3 or held.shape[1] != tokens:
        return None
    return held.reshape(held.shape[0], tokens, -1)


def seen(bench: Bench, batch: Batch, window: int | None) -> Tensor:
    """Bool ``[watched, unit_tokens]``: positions that some row sees or writes."""
    return _mask(bench, [(r.units, r.first_seen(window), r.end) for r in batch.requests])


def written(bench: Bench, batch: Batch) -> Tensor:
    """Bool ``[watched, unit_tokens]``: positions that the batch computes."""
    return _mask(bench, [(r.units, r.start, r.end) for r in batch.requests])


def positions(bench: Bench, spans: list[tuple[tuple[int, ...], int, int]]) -> Tensor:
    """Bool ``[watched, unit_tokens]``: positions ``[low, high)`` of requests with these units."""
    return _mask(bench, spans)


def unseen(bench: Bench, batch: Batch) -> dict[str, dict[str, Tensor]]:
    """Bool ``[watched, unit_tokens]`` by what it is and by tensor; only what there is.

    Of tensors that are not by position, only units that belong to no request.
    """
    sink = bench.memory.sink
    mine = {unit for request in batch.requests for unit in request.units}
    shape = (len(bench.watched), bench.memory.unit_tokens)
    sunk, nobody = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for row, unit in enumerate(bench.watched):
        (sunk if unit == sink else nobody)[row] = unit not in mine
    held = _mask(bench, [(r.units, 0, r.end) for r in batch.requests])
    behind = ~(sunk | nobody | held)
    found: dict[str, dict[str, Tensor]] = {}
    for name, state in bench.before.items():
        if not state.dtype.is_floating_point:
            continue
        window = bench.window(name)
        parts = {"the sink": sunk, "memory of no request": nobody}
        if by_position(bench, state) is not None:
            parts["memory behind the contexts"] = behind
            before = held & ~seen(bench, batch, window)
            parts[f"positions that left a window of {window}"] = before
        for what, mask in parts.items():
            if bool(mask.any()):
                found.setdefault(what, {})[name] = mask
    return found


def with_unseen_changed(
    bench: Bench,
    state: Mapping[str, Tensor],
    masks: Mapping[str, Mapping[str, Tensor]],
    seed: int,
) -> dict[str, Tensor]:
    """``state`` with other contents in what ``masks`` say; equal seeds give equal contents."""
    generator = torch.Generator().manual_seed(seed)
    found = dict(state)
    for parts in masks.values():
        for name, mask in parts.items():
            held = found[name]
            if held is state[name]:
                held = found[name] = held.clone()
            places = by_position(bench, held)
            if places is None:
                places, mask = held.view(held.shape[0], 1, -1), mask[:, :1]
            at = mask.to(held.device)
            size = (int(mask.sum()), places.shape[-1])
            places[at] = torch.randn(size, generator=generator).to(held)
    return found


def _mask(bench: Bench, spans: list[tuple[tuple[int, ...], int, int]]) -> Tensor:
    tokens = bench.memory.unit_tokens
    rows = {unit: row for row, unit in enumerate(bench.watched)}
    mask = torch.zeros(len(bench.watched), tokens, dtype=torch.bool)
    for units, low, high in spans:
        for index in range(low // tokens, -(-high // tokens)):
            first = index * tokens
            mask[rows[units[index]], max(low - first, 0) : min(high - first, tokens)] = True
    return mask
