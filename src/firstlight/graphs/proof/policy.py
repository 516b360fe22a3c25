"""What the slots must hold right after a fill, whatever an earlier and longer batch left there."""

from __future__ import annotations

from torch import Tensor

from firstlight.graphs.proof.bench import Bench
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.report import Finding
from firstlight.graphs.slot import Axis, Meaning, Padding, SlotSpec
from firstlight.graphs.slots import EMBEDS, LIVE_TOKENS, POSITIONS, attention_names


def check_fill(bench: Bench, batch: Batch, name: str) -> list[Finding]:
    """Fill ``batch`` over what the slots hold, and look at padding and absent data.

    Padding rows of an index slot point at the sink; rows, positions and planes are neutral there,
    and so are the facts of requests that are not in the batch, on every side; other slots hold what
    their policy says. Segments beyond the first and planes without data are
    neutral on live rows too.
    """
    bench.fill(batch, bench.subject.bucket)
    registry = bench.subject.registry
    padded, findings = bench.extent(bench.subject.bucket), []
    for slot in registry.names:
        spec, buf = registry.spec(slot), registry.buffer(slot)
        if spec.axis is Axis.NONE:
            continue
        start, end = batch.live.on(spec.axis), padded.on(spec.axis)
        neutral = _neutral(bench, spec)
        if neutral is not None:
            tail = buf.narrow(spec.dim, start, end - start)
            findings += _expect(tail, neutral, spec, name, f"padding of slot {slot}", start)
        absent = _absent(bench, batch, spec, buf)
        if absent is not None:
            value = 0.0 if neutral is None else neutral
            findings += _expect(absent, value, spec, name, f"slot {slot} without data", 0)
    return [*findings, *_check_boundary(bench, batch, name)]


def _check_boundary(bench: Bench, batch: Batch, name: str) -> list[Finding]:
    registry = bench.subject.registry
    if not registry.has(LIVE_TOKENS) or registry.spec(LIVE_TOKENS).hook is None:
        return []
    found = int(registry.buffer(LIVE_TOKENS).max())
    # A rank of several holds a share of the live rows; one that holds more than all is wrong.
    if found <= batch.live.tokens:
        return []
    where = f"slot {LIVE_TOKENS} says {found}, the batch has {batch.live.tokens} live rows"
    return [Finding(name, "a filled slot and its policy", where)]


def _neutral(bench: Bench, spec: SlotSpec) -> float | None:
    """What padding must hold; None where the policy leaves it alone."""
    planes = {plane.name: plane.neutral for plane in bench.contents.contract.planes}
    facts = {side.attention_rows for side in attention_names(bench.subject.registry.names)}
    if spec.meaning is Meaning.INDEX or spec.name in (EMBEDS, POSITIONS, *facts):
        return 0.0
    if spec.name in planes:
        return planes[spec.name]
    return None if spec.padding is Padding.KEEP else spec.neutral


def _absent(bench: Bench, batch: Batch, spec: SlotSpec, buf: Tensor) -> Tensor | None:
    """Live rows that the batch brings no data for."""
    live = buf.narrow(spec.dim, 0, batch.live.on(spec.axis))
    if spec.name == EMBEDS:
        return live[:, bench.contents.contract.segments[0].end :]
    if spec.name in batch.planes and batch.planes[spec.name] is None:
        return live
    return None


def _expect(
    rows: Tensor, value: float, spec: SlotSpec, case: str, what: str, start: int
) -> list[Finding]:
    wrong = rows.ne(value)
    if not bool(wrong.any()):
        return []
    along = wrong.movedim(spec.dim, 0).reshape(rows.shape[spec.dim], -1).any(1)
    row = int(along.int().argmax())
    held = rows.movedim(spec.dim, 0)[row].flatten().double()
    worst = float((held - value).abs().max())
    where = f"{what} is stale: row {start + row} does not hold {value:g}"
    return [Finding(case, "a filled slot and its policy", where, worst)]
