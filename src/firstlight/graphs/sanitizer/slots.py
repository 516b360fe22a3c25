"""Slots before and after a batch is written: poison first, then look what is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.memory import SINK, Footprint, PagedMemory, compact, token_slots
from firstlight.graphs.sanitizer.poison import bits, is_poison, poison_
from firstlight.graphs.sanitizer.tracker import TrackedRegistry
from firstlight.graphs.slot import Axis, Extent, Meaning, SlotSpec
from firstlight.graphs.slots import BLOCK_BOUNDS, attention_names


def poison_slots(registry: SlotRegistry, values: Mapping[str, Tensor | None], live: Extent) -> None:
    """Poison everything that the coming fill and merge have to define.

    Rows that a policy leaves alone keep their contents, as they would without the sanitizer.
    """
    for name in registry.names:
        spec, buf = registry.spec(name), registry.buffer(name)
        comes = not spec.copied or spec.source is not None or values.get(name) is not None
        if spec.axis is Axis.NONE:
            if spec.hook is not None or (comes and (spec.copied or spec.resets)):
                poison_(buf)
        elif spec.resets:
            poison_(buf)
        elif comes:
            poison_(buf.narrow(spec.dim, 0, live.on(spec.axis)))


def heal(registry: SlotRegistry, before: Mapping[str, Tensor]) -> None:
    """Put back what a slot held wherever nobody wrote: what a plain run would have read."""
    for name, saved in before.items():
        buf = registry.buffer(name)
        left = is_poison(buf)
        if bool(left.any()):
            buf[left] = saved[left]


def settle(registry: SlotRegistry, padded: Extent) -> None:
    """Give rows beyond the bucket their neutral value again."""
    for name in registry.names:
        spec = registry.spec(name)
        if spec.axis is not Axis.NONE and spec.resets:
            beyond_(registry, spec, padded).fill_(spec.neutral)


def beyond_(registry: SlotRegistry, spec: SlotSpec, padded: Extent) -> Tensor:
    """The rows of a slot behind the padded ones."""
    buf, end = registry.buffer(spec.name), padded.on(spec.axis)
    return buf.narrow(spec.dim, end, buf.shape[spec.dim] - end)


def padding_(registry: SlotRegistry, spec: SlotSpec, live: Extent, padded: Extent) -> Tensor:
    """The rows of a slot between the live ones and the bucket's end."""
    n, end = live.on(spec.axis), padded.on(spec.axis)
    return registry.buffer(spec.name).narrow(spec.dim, n, end - n)


def check_slots(registry: SlotRegistry, live: Extent, padded: Extent) -> Iterator[Fault]:
    """What the slots hold for a batch that is about to run.

    Facts of requests that are not in it are neutral on every side, whatever their policy says.
    """
    facts = {side.attention_rows for side in attention_names(registry.names)}
    for name in registry.names:
        spec = registry.spec(name)
        if spec.axis is Axis.NONE:
            if bool(is_poison(registry.buffer(name)).any()):
                yield _slot(FindingKind.ROW_UNWRITTEN, spec, "it was not computed for this batch")
            continue
        yield from _check_live(registry, spec, live)
        if (spec.resets and spec.hook is None) or name in facts:
            yield from _check_padding(registry, spec, live, padded)
        if spec.meaning is Meaning.INDEX:
            yield from _check_negative(registry, spec, padded)
    if isinstance(registry, TrackedRegistry):
        yield from _check_doubles(registry, live)


def _check_live(registry: SlotRegistry, spec: SlotSpec, live: Extent) -> Iterator[Fault]:
    rows = registry.view(spec.name, live).movedim(spec.dim, 0)
    left = is_poison(rows)
    if bool(left.any()):
        which = _rows(left)
        detail = f"rows {which} of {len(rows)} live ones were not written{_columns(spec, left)}"
        yield _slot(FindingKind.ROW_UNWRITTEN, spec, detail)
    if rows.dtype.is_floating_point:
        nan = rows.isnan() & ~left
        if bool(nan.any()):
            detail = f"rows {_rows(nan)} were written with NaN{_columns(spec, nan)}"
            yield _slot(FindingKind.NAN_INPUT, spec, detail)


def _check_padding(
    registry: SlotRegistry, spec: SlotSpec, live: Extent, padded: Extent
) -> Iterator[Fault]:
    rows = padding_(registry, spec, live, padded).movedim(spec.dim, 0)
    wrong = rows.ne(torch.tensor(spec.neutral, dtype=rows.dtype, device=rows.device))
    if bool(wrong.any()):
        start = live.on(spec.axis)
        at = [start + int(i) for i in wrong.reshape(len(rows), -1).any(1).nonzero().flatten()]
        held = "what an earlier batch left" if bool(is_poison(rows)[wrong].all()) else "other data"
        detail = f"padding rows {compact(at)} hold {held} instead of {spec.neutral:g}"
        yield _slot(FindingKind.PADDING_NOT_NEUTRAL, spec, detail)


def _check_negative(registry: SlotRegistry, spec: SlotSpec, padded: Extent) -> Iterator[Fault]:
    rows = registry.view(spec.name, padded).movedim(spec.dim, 0)
    if bool((rows < 0).any()):
        detail = f"rows {_rows(rows < 0)} hold negative indices, down to {int(rows.min())}"
        yield _slot(FindingKind.BAD_INDEX, spec, detail)


def _check_doubles(registry: TrackedRegistry, live: Extent) -> Iterator[Fault]:
    for name in registry.names:
        counts = registry.counts(name)
        if counts is None:
            continue
        spec = registry.spec(name)
        twice = counts.counts.movedim(spec.dim, 0)[: live.on(spec.axis)] > 1
        if bool(twice.any()):
            detail = f"rows {_rows(twice)} were written more than once{_columns(spec, twice)}"
            yield Fault(FindingKind.ROW_WRITTEN_TWICE, f"slot {name}", detail, where=counts.again)


def check_indices(
    registry: SlotRegistry, live: Extent, memory: PagedMemory, expected: Footprint | None
) -> Iterator[Fault]:
    """Token slots and pages of the live rows: in range, each once, off the sink, the batch's."""
    names = memory.slots
    if not all(map(registry.has, names.all)):
        return
    size, n_slots = memory.page_size, memory.n_pages * memory.page_size
    to = registry.buffer(names.write_locations)[: live.tokens].cpu()
    spec, pages = registry.spec(names.write_locations), registry.spec(names.page_table)
    if bool((to >= n_slots).any()):
        detail = f"rows {_rows(to >= n_slots)} lie outside the pool of {n_slots} token slots"
        yield _slot(FindingKind.BAD_INDEX, spec, detail)
    sunk = (to >= 0) & (to < size)
    if bool(sunk.any()):
        detail = f"live rows {_rows(sunk)} would be stored in the sink page"
        yield _slot(FindingKind.BAD_INDEX, spec, detail)
    values, counts = torch.unique(to, return_counts=True)
    if bool((counts > 1).any()):
        detail = f"token slots {compact(values[counts > 1].tolist())} are written by several rows"
        yield _slot(FindingKind.BAD_INDEX, spec, detail)
    if expected is not None and not torch.equal(expected.writes, to):
        row = int(expected.writes.ne(to).nonzero()[0]) if len(expected.writes) == len(to) else 0
        detail = (
            f"row {row} goes to token slot {int(to[row])}, which its request's page does not say"
        )
        yield _slot(FindingKind.BAD_INDEX, spec, detail)
    table = registry.buffer(names.page_table)[: live.requests].cpu()
    if bool((table >= memory.n_pages).any()):
        detail = f"request rows {_rows(table >= memory.n_pages)} name pages beyond the pool"
        yield _slot(FindingKind.BAD_INDEX, pages, detail)
        return
    yield from _check_spare(registry, live, memory)
    yield from _check_runs(registry, live, memory)


def _check_spare(registry: SlotRegistry, live: Extent, memory: PagedMemory) -> Iterator[Fault]:
    """Entries of a page table that no row sees or writes: behind a context, before a window."""
    names, size = memory.slots, memory.page_size
    facts = registry.buffer(names.attention_rows)[: live.requests].tolist()
    table = registry.buffer(names.page_table).cpu()
    for row, (_, rows, context, _) in zip(table, facts, strict=False):
        used = slice(memory.first_seen(context - rows) // size, -(-context // size))
        spare = row.clone()
        spare[used] = SINK
        if bool(spare.any()):
            at = int(spare.nonzero()[0])
            detail = f"entry {at} names page {int(spare[at])}, though no row sees or writes there"
            yield _slot(FindingKind.BAD_INDEX, registry.spec(names.page_table), detail)
            return


def _check_runs(registry: SlotRegistry, live: Extent, memory: PagedMemory) -> Iterator[Fault]:
    """Runs that attention reads in one piece must be what the page table says page by page."""
    names = memory.slots
    table = registry.buffer(names.page_table).cpu()
    facts = registry.buffer(names.attention_rows)[: live.requests].tolist()
    for i, (_, rows, context, run) in enumerate(facts):
        if run < 0 or not 0 < context <= table.shape[1] * memory.page_size:
            continue
        first = memory.first_seen(context - rows)
        slots = token_slots(table[i].long(), context, memory.page_size, first)
        wrong = slots.ne(torch.arange(run, run + len(slots), device=slots.device))
        if bool(wrong.any()):
            position = first + int(wrong.nonzero()[0])
            detail = (
                f"request row {i} says that position {position} lies in a run at token slot "
                f"{run + position - first}, its page table {int(slots[position - first])}"
            )
            yield _slot(FindingKind.BAD_INDEX, registry.spec(names.attention_rows), detail)


def check_blocks(registry: SlotRegistry, live: Extent) -> Iterator[Fault]:
    """Media blocks: each row lies in its own, all rows of one agree, and no chunk cuts one."""
    sides = attention_names(registry.names)
    if not registry.has(BLOCK_BOUNDS) or not sides:
        return
    spec, bounds = registry.spec(BLOCK_BOUNDS), registry.buffer(BLOCK_BOUNDS)
    for facts in registry.buffer(sides[0].attention_rows)[: live.requests].tolist():
        first, rows, context, _ = facts
        mine = bounds[first : first + rows].tolist()
        if len(mine) < rows:
            continue  # the facts themselves are wrong, which is said elsewhere
        for row, (low, high) in enumerate(mine):
            position = context - rows + row
            if not low <= position < high:
                what = f"bounds [{low}, {high}) leave out its own position {position}"
            elif not context - rows <= low < high <= context:
                what = f"bounds [{low}, {high}) reach beyond the rows of this batch"
            elif mine[low - position + row] != [low, high] or mine[high - 1 - position + row] != [
                low,
                high,
            ]:
                what = f"bounds [{low}, {high}) are not those of the rows at their ends"
            else:
                continue
            yield _slot(FindingKind.BAD_INDEX, spec, f"row {first + row}: {what}")
            break


def check_table(
    shown: Footprint | None, expected: Footprint | None, memory: PagedMemory
) -> Iterator[Fault]:
    """Contexts as the page table gives them against those that the batch's pages give."""
    if shown is None or expected is None or torch.equal(shown.reads, expected.reads):
        return
    alien = sorted(set(shown.reads.tolist()) - set(expected.reads.tolist()))
    missing = sorted(set(expected.reads.tolist()) - set(shown.reads.tolist()))
    if alien:
        detail = f"the context takes in {memory.place(alien[0])}, which the batch does not hold"
    elif missing:
        detail = f"the context leaves out {memory.place(missing[0])}, which the batch holds"
    else:
        detail = "the pages of the contexts are in another order than the batch holds them"
    yield Fault(FindingKind.BAD_INDEX, f"slot {memory.slots.page_table}", detail)


def slot_contents(registry: SlotRegistry) -> dict[str, Tensor]:
    """A copy of every slot."""
    return {name: registry.buffer(name).clone() for name in registry.names}


def changed_slots(registry: SlotRegistry, before: Mapping[str, Tensor]) -> Iterator[Fault]:
    """Slots that a run of the body changed."""
    for name, saved in before.items():
        spec, buf = registry.spec(name), registry.buffer(name)
        wrong = bits(buf).ne(bits(saved))
        if bool(wrong.any()):
            rows = wrong.movedim(spec.dim, 0) if spec.axis is not Axis.NONE else wrong
            yield _slot(FindingKind.SLOT_WRITTEN, spec, f"the body changed rows {_rows(rows)}")


def _slot(kind: FindingKind, spec: SlotSpec, detail: str) -> Fault:
    return Fault(kind, f"slot {spec.name}", detail)


def _rows(mask: Tensor) -> str:
    """Indices of the first axis where anything is set."""
    return compact(mask.reshape(len(mask), -1).any(1).nonzero().flatten().tolist())


def _columns(spec: SlotSpec, mask: Tensor) -> str:
    """The segments that hold what is set, if the slot has several."""
    if len(spec.segments) < 2:
        return ""
    columns = mask.reshape(-1, mask.shape[-1]).any(0)
    names = [s.name for s in spec.segments if bool(columns[s.start : s.end].any())]
    return f" in segment {', '.join(names)}"
