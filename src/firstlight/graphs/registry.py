"""The slots of one phase: allocated once, filled before every step, viewed by graphs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from firstlight.errors import SlotError
from firstlight.graphs.arena import Arena
from firstlight.graphs.fill import FillPlan, plan_fill
from firstlight.graphs.ownership import Ownership
from firstlight.graphs.slot import Axis, Extent, SlotInfo, SlotSpec
from firstlight.transfer import fill_from

_PLANS = 256  # pairs of live and padded extents whose views are kept


class SlotRegistry:
    """Owns or borrows one buffer per enabled slot; addresses never change after allocation.

    Args:
        capacity: rows that every buffer has on each axis; may exceed the largest bucket, because
            eager batches use the same slots.
        arena: shares memory with the registries of other phases.
        device: where slots live that name no device of their own.
    """

    def __init__(
        self, capacity: Extent, arena: Arena, device: torch.device | str | None = None
    ) -> None:
        self.capacity = capacity
        self._arena = arena
        self._device = arena.device if device is None else torch.device(device)
        self._specs: dict[str, SlotSpec] = {}
        self._buffers: dict[str, torch.Tensor] = {}
        self._plans: dict[tuple[Extent, Extent], FillPlan] = {}

    def register(self, spec: SlotSpec) -> None:
        """Add a slot.

        Raises:
            SlotError: a slot of this name exists.
        """
        if spec.name in self._specs:
            raise SlotError(f"the slot {spec.name!r} is registered twice")
        self._specs[spec.name] = spec
        self._plans.clear()

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        """Adopt ``tensor`` as the buffer of ``name`` instead of allocating one.

        Raises:
            SlotError: no such slot, memory exists already, or shape, dtype or device differ.
        """
        spec = self._spec(name)
        if name in self._buffers:
            raise SlotError(f"the slot {name!r} has its memory; a captured address never moves")
        shape, device = spec.sizes(self.capacity), spec.device or self._device
        if (tuple(tensor.shape), tensor.dtype, tensor.device.type) != (
            shape, spec.dtype, device.type,
        ):  # fmt: skip
            raise SlotError(
                f"the slot {name!r} is {list(shape)} {spec.dtype} on {device}; the tensor to adopt "
                f"is {list(tensor.shape)} {tensor.dtype} on {tensor.device}"
            )
        self._buffers[name] = tensor

    def allocate(self) -> None:
        """Give every enabled slot without memory a buffer of its neutral value."""
        for name, spec in self._specs.items():
            if not spec.enabled or name in self._buffers:
                continue
            shape = spec.sizes(self.capacity)
            buf, fresh = self._arena.buffer(name, shape, spec.dtype, spec.device or self._device)
            if fresh and spec.neutral != 0:
                buf.fill_(spec.neutral)
            self._buffers[name] = buf

    def has(self, name: str) -> bool:
        """Whether the slot exists and is enabled."""
        return name in self._specs and self._specs[name].enabled

    @property
    def names(self) -> tuple[str, ...]:
        """Enabled slots in the order of registration."""
        return tuple(name for name in self._specs if self.has(name))

    def buffer(self, name: str) -> torch.Tensor:
        """The whole buffer, capacity rows.

        Raises:
            SlotError: the slot does not exist, is disabled, or has no memory yet.
        """
        if not self.has(name):
            raise SlotError(f"there is no slot {name!r}; there are {', '.join(self.names)}")
        if name not in self._buffers:
            raise SlotError(f"the slot {name!r} has no memory yet; call allocate() first")
        return self._buffers[name]

    def view(self, name: str, extent: Extent) -> torch.Tensor:
        """The first rows of a slot on its axis, at the slot's own address.

        Raises:
            SlotError: more rows than the capacity.
        """
        buf, spec = self.buffer(name), self._specs[name]
        if spec.axis is Axis.NONE:
            return buf
        self._check_extent(extent)
        return buf.narrow(spec.dim, 0, extent.on(spec.axis))

    def fill(self, values: Mapping[str, torch.Tensor | None], live: Extent, padded: Extent) -> None:
        """Write one batch: reset padding, copy values, run hooks. All or nothing is checked first.

        Rows beyond ``padded`` are not touched. ``values`` may hold entries that are no slots.

        Raises:
            SlotError: a value is missing, or of wrong rows, shape or dtype; nothing is written.
        """
        plan = self._plan(live, padded)
        given = self._given(plan, values)
        for view, neutral in plan.resets:
            view.fill_(neutral)
        for slot, value in zip(plan.copied, given, strict=True):
            if value is not None:
                fill_from(slot.head, value)
            elif slot.whole is not None:
                slot.whole.fill_(slot.spec.neutral)
        for hook, buf in plan.hooks:
            hook(buf, live, padded)

    def neutralise(self, padded: Extent) -> None:
        """Make every row up to ``padded`` neutral, in all slots; used before a capture."""
        for name in self.names:
            self.view(name, padded).fill_(self._specs[name].neutral)

    def write(self, name: str, rows: torch.Tensor, start: int, segment: str | None = None) -> None:
        """Write ``rows`` at row ``start``, whole or into the columns of one segment.

        Raises:
            SlotError: rows, width or dtype do not fit; nothing is written.
        """
        self.target(name, rows, start, segment).copy_(rows)

    def check_write(
        self, name: str, rows: torch.Tensor, start: int = 0, segment: str | None = None
    ) -> None:
        """Raise SlotError unless ``rows`` may be written at row ``start``; writes nothing."""
        self.target(name, rows, start, segment)

    def target(
        self, name: str, rows: torch.Tensor, start: int, segment: str | None = None
    ) -> torch.Tensor:
        """The checked destination of a write, for callers that produce rows in place."""
        buf, spec = self.buffer(name), self._specs[name]
        if spec.axis is Axis.NONE:
            raise SlotError(f"the slot {name!r} has no rows")
        n_rows = rows.shape[spec.dim] if rows.dim() > spec.dim else 0
        if start < 0 or start + n_rows > buf.shape[spec.dim]:
            raise SlotError(
                f"rows {start} to {start + n_rows} do not fit the slot {name!r} of "
                f"{buf.shape[spec.dim]} rows"
            )
        target = buf.narrow(spec.dim, start, n_rows)
        if segment is not None:
            part = next((s for s in spec.segments if s.name == segment), None)
            if part is None:
                known = ", ".join(s.name for s in spec.segments) or "none"
                raise SlotError(f"the slot {name!r} has no segment {segment!r}; it has {known}")
            target = target.narrow(-1, part.start, part.width)
        _check_value(f"{name}.{segment}" if segment else name, rows, target)
        return target

    def overlay(self, batch: Mapping[str, object], padded: Extent) -> dict[str, object]:
        """``batch`` with each slot replaced by its padded view; the batch itself is unchanged.

        A slot that is copied and absent from the batch stays absent (None), so that nobody reads
        what an earlier batch left; computed slots are always there.
        """
        merged = dict(batch)
        for name in self.names:
            spec = self._specs[name]
            known = not spec.copied or spec.source is not None or batch.get(name) is not None
            merged[name] = self.view(name, padded) if known or not spec.required else None
        return merged

    def spec(self, name: str) -> SlotSpec:
        """The declaration of a slot; SlotError if there is none."""
        return self._spec(name)

    def own(self, owned: Ownership) -> None:
        """Declare every buffer as memory that captured graphs may touch."""
        for name in self.names:
            owned.add(self.buffer(name), f"slot {name}")

    def describe(self) -> list[SlotInfo]:
        """Every enabled slot with its real shape and bytes."""
        return [self._info(name) for name in self.names]

    def _info(self, name: str) -> SlotInfo:
        spec, buf = self._specs[name], self.buffer(name)
        return SlotInfo(
            name, tuple(buf.shape), str(spec.dtype).removeprefix("torch."), buf.nbytes,
            spec.padding.value, spec.meaning.value, spec.axis.value,
        )  # fmt: skip

    def _spec(self, name: str) -> SlotSpec:
        if name not in self._specs:
            raise SlotError(f"there is no slot {name!r}; there are {', '.join(self.names)}")
        return self._specs[name]

    def _check_extent(self, extent: Extent) -> None:
        room = self.capacity
        if extent.tokens > room.tokens or extent.requests > room.requests:
            raise SlotError(
                f"a batch of {extent.tokens} tokens and {extent.requests} requests exceeds the "
                f"slots' capacity of {room.tokens} and {room.requests}"
            )

    def _plan(self, live: Extent, padded: Extent) -> FillPlan:
        """The prepared views of a fill; the last used ones are kept."""
        plan = self._plans.pop((live, padded), None)
        if plan is None:
            self._check_extent(padded)
            if live.tokens > padded.tokens or live.requests > padded.requests:
                raise SlotError(f"{live} does not fit the padded {padded}")
            specs = [self._specs[name] for name in self.names]
            plan = plan_fill(specs, {n: self.buffer(n) for n in self.names}, live, padded)
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
        self._plans[live, padded] = plan
        return plan

    def _given(
        self, plan: FillPlan, values: Mapping[str, torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """The value of every copied slot, checked; None where it is absent and may be."""
        given: list[torch.Tensor | None] = []
        for slot in plan.copied:
            spec = slot.spec
            if spec.source is None:
                value = values.get(spec.name)
            else:
                value = spec.source({k: v for k, v in values.items() if v is not None})
            if value is not None:
                _check_value(spec.name, value, slot.head)
            elif spec.required:
                raise SlotError(f"the batch brings no value for the slot {spec.name!r}")
            given.append(value)
        return given


def _check_value(name: str, value: torch.Tensor, target: torch.Tensor) -> None:
    """Equal shape and dtype, nothing cast or broadcast on the way."""
    if value.shape != target.shape or value.dtype != target.dtype:
        raise SlotError(
            f"the slot {name!r} takes {list(target.shape)} {target.dtype} here; the value is "
            f"{list(value.shape)} {value.dtype}"
        )
