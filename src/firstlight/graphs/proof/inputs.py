"""Every input of a batch, changed alone: what is live must show, what is padding must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.cases import Case
from firstlight.graphs.proof.compare import difference, scale_of
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.equality import compare_state, prefix_units
from firstlight.graphs.proof.memory import Placed
from firstlight.graphs.proof.report import Finding
from firstlight.graphs.proof.visible import (
    by_position,
    positions,
    unseen,
    with_unseen_changed,
    written,
)
from firstlight.graphs.slot import Axis, SlotSpec
from firstlight.graphs.slots import EMBEDS, POSITIONS


@dataclass(frozen=True, slots=True)
class Change:
    """One input that differs from a base batch; all else is equal.

    Attributes:
        stored: an effect may be seen in what the batch stores alone, as for a row whose own output
            is not asked for.
    """

    what: str
    batch: Batch
    state: Mapping[str, Tensor] | None = None
    stored: bool = False


def changes(bench: Bench, case: Case, base: Batch, *, places: bool) -> Iterator[Change]:
    """Each segment, plane, position row, media blocks, and the cached prefix.

    Args:
        places: also the context length, and where the requests live.
    """
    generator = torch.Generator().manual_seed(bench.seed + 1)
    yield from _row_changes(bench, base, generator)
    if any(_blocks_of(request) for request in base.requests):
        plain = tuple(replace(request, blocks=()) for request in base.requests)
        yield Change("media blocks", replace(base, requests=plain), stored=True)
    if not bench.before:
        return
    cached = [u for request in base.requests for u in prefix_units(bench, request)]
    if cached:
        state = {name: held.clone() for name, held in bench.before.items()}
        at = torch.tensor(bench.rows_of(cached))
        for held in state.values():
            if held.dtype.is_floating_point:
                held[at] = torch.randn(held[at].shape, generator=generator).to(held)
        yield Change("contents of the cached prefix", base, state)
        yield from _edges(bench, base, generator)
    if cached and places:
        shorter = tuple(_shorter(request) for request in base.requests)
        yield Change("context length", replace(base, requests=shorter))
        moved = _elsewhere(bench, case, cached)
        if moved is not None:
            yield Change("place in memory", replace(base, requests=moved))


def _edges(bench: Bench, base: Batch, generator: torch.Generator) -> Iterator[Change]:
    """For each window, the oldest cached position that a row sees: one more is one too many."""
    for window in sorted({bench.window(name) for name in bench.before}, key=lambda w: w or 0):
        edges, within = [], []
        for request in base.requests:
            edge = request.first_seen(window)
            within.append((request.units, edge + 1, request.end))
            # A context within the window has no edge but its beginning.
            if edge < request.start and (window is None or edge > 0):
                edges.append((request.units, edge, edge + 1))
        # Of units that requests share, one's edge lies within the window of another.
        mask = positions(bench, edges) & ~positions(bench, within)
        if not bool(mask.any()):
            continue
        state = {}
        for name, held in bench.before.items():
            places = by_position(bench, held) if bench.window(name) == window else None
            if places is None or not held.dtype.is_floating_point:
                state[name] = held
                continue
            at, places = mask.to(held.device), places.clone()
            # Large, since one position of many has little weight.
            places[at] = 8 * torch.randn(places[at].shape, generator=generator).to(held)
            state[name] = places.view(held.shape)
        if any(state[name] is not held for name, held in bench.before.items()):
            what = "the first cached position"
            if window is not None:
                what = f"the oldest position in a window of {window}"
            yield Change(what, base, state)


def _blocks_of(request: Placed) -> list[tuple[int, int]]:
    """The blocks of more than one row that are computed now."""
    return [(a, b) for a, b in request.blocks if request.start <= a < b - 1 < request.end]


def _elsewhere(bench: Bench, case: Case, cached: list[int]) -> tuple[Placed, ...] | None:
    """Other units for the same requests, so that their prefixes lie elsewhere; None without room.

    Args:
        cached: the units of all prefixes as they lie now.
    """
    for turn in range(1, 9):
        moved = bench.place(case, turn)
        if [u for request in moved for u in prefix_units(bench, request)] != cached:
            return moved
    return None


def _row_changes(bench: Bench, base: Batch, generator: torch.Generator) -> Iterator[Change]:
    contents, n = bench.contents, base.live.tokens
    for segment in contents.contract.segments:
        rows = base.rows.clone()
        rows[:, segment.start : segment.end] = contents.values((n, segment.width), generator)
        yield Change(f"segment {segment.name}", replace(base, rows=rows))
    for name, value in base.planes.items():
        if value is not None:
            other = {**base.planes, name: contents.other_plane(name, value, generator)}
            yield Change(f"plane {name}", replace(base, planes=other))
    rank = base.positions.shape[0]
    for row in range(rank):
        positions = base.positions.clone()
        positions[row] = contents.position_row(n, generator)
        what = "positions" if rank == 1 else f"positions, row {row} of {rank}"
        yield Change(what, replace(base, positions=positions))


def _shorter(request: Placed) -> Placed:
    """The same rows with one token less before them."""
    if not request.start:
        return request
    blocks = tuple((max(a - 1, 0), b - 1) for a, b in request.blocks)
    return replace(request, start=request.start - 1, end=request.end - 1, blocks=blocks)


def is_read(base: Outcome, changed: Outcome, *, stored: bool = False) -> bool:
    """Whether the outputs of two runs differ at all.

    Args:
        stored: or what they left in the state.
    """
    if difference(changed.hidden, base.hidden) is not None:
        return True
    return stored and any(
        difference(changed.state[name], held) is not None for name, held in base.state.items()
    )


Poison = Callable[[Bench, Batch], None]


def poisons(bench: Bench, batch: Batch) -> dict[str, Poison]:
    """What may be changed in loaded slots without any effect, by name."""
    found: dict[str, Poison] = {"rows beyond the bucket": poison_beyond}
    if batch.live.tokens < bench.subject.bucket:
        found["padding rows"] = poison_padding
    return found


def poison_padding(bench: Bench, batch: Batch) -> None:
    """Other data in the rows between the batch and the bucket; where they write stays the sink."""
    registry, n = bench.subject.registry, batch.live.tokens
    names = [EMBEDS, POSITIONS, *(plane.name for plane in bench.contents.contract.planes)]
    for name in names:
        spec = registry.spec(name)
        rows = registry.buffer(name).narrow(spec.dim, n, bench.subject.bucket - n)
        rows.fill_(_garbage(spec))


def poison_beyond(bench: Bench, batch: Batch) -> None:
    """Other data in every slot behind the bucket's last row: the negative of what is stale there.

    Indices become the sink.
    """
    registry = bench.subject.registry
    padded = bench.extent(bench.subject.bucket)
    for name in registry.names:
        spec = registry.spec(name)
        if spec.axis is Axis.NONE:
            continue
        buf, end = registry.buffer(name), padded.on(spec.axis)
        rows = buf.narrow(spec.dim, end, buf.shape[spec.dim] - end)
        rows.fill_(-_garbage(spec) if spec.dtype.is_floating_point else 0)


def leave_stale(bench: Bench) -> None:
    """Other data in all rows of every slot, as an earlier and longer batch leaves it."""
    registry = bench.subject.registry
    for name in registry.names:
        spec = registry.spec(name)
        counts = spec.axis is Axis.NONE and not spec.dtype.is_floating_point
        registry.buffer(name).fill_(registry.capacity.tokens if counts else _garbage(spec))


def _garbage(spec: SlotSpec) -> float:
    """Something else than what is neutral, and legal: an index of 1 exists, and is not the sink."""
    return spec.neutral + 1.25 if spec.dtype.is_floating_point else 1


def check_padding(
    bench: Bench, batch: Batch, base: Outcome, case: str, tolerance: float, *, together: bool
) -> list[Finding]:
    """Live rows and state must not react to padding.

    Args:
        tolerance: in units of the largest output, or the largest value of a state tensor.
        together: change all of it at once, and ask what it was only if something reacts.
    """
    found = poisons(bench, batch)

    def reacts(given: list[Poison], name: str) -> list[Finding]:
        bench.load(batch, bench.subject.bucket)
        for poison in given:
            poison(bench, batch)
        run = bench.replay(batch, loaded=True)
        compared = f"replays before and after a change of {name}"
        gap = difference(run.hidden, base.hidden, tolerance * scale_of(base.hidden))
        if gap is not None:
            where = f"output row {gap.first} is the first of {gap.rows} live rows to change"
            return [Finding(case, compared, where, gap.size)]
        scale = max((scale_of(values) for values in base.state.values()), default=0.0)
        return compare_state(bench, batch, run.state, base.state, case, compared, tolerance * scale)

    if together and not reacts(list(found.values()), "padding"):
        return []
    return [finding for name, poison in found.items() for finding in reacts([poison], name)]


def check_unseen(
    bench: Bench, batch: Batch, base: Outcome, case: str, tolerance: float
) -> list[Finding]:
    """Live rows and what they store must not react to memory that none of them may see.

    The sink, where unbound units point; units of no request; what lies behind a context; positions
    that left the window of a side. All of it is changed at once, and what it was is asked only if
    something reacts.

    Args:
        tolerance: in units of the largest output, or the largest value of a state tensor.
    """
    if not bench.before:
        return []
    masks = unseen(bench, batch)
    new = written(bench, batch)

    def reacts(names: list[str], name: str) -> list[Finding]:
        parts = {what: masks[what] for what in names}
        run = bench.replay(batch, with_unseen_changed(bench, bench.before, parts, bench.seed + 3))
        compared = f"replays before and after a change of {name}"
        gap = difference(run.hidden, base.hidden, tolerance * scale_of(base.hidden))
        if gap is not None:
            where = f"output row {gap.first} is the first of {gap.rows} live rows to change"
            return [Finding(case, compared, where, gap.size)]
        for tensor, held in run.state.items():
            ours, theirs = by_position(bench, held), by_position(bench, base.state[tensor])
            if ours is None or theirs is None:
                continue
            at = new.to(held.device)
            gap = difference(ours[at], theirs[at], tolerance * scale_of(theirs[at]))
            if gap is not None:
                where = f"{tensor}: row {gap.first} in order of units is stored otherwise"
                return [Finding(case, compared, where, gap.size)]
        return []

    if not masks or not reacts(list(masks), "memory that no row sees"):
        return []
    return [finding for what in masks for finding in reacts([what], what)]
