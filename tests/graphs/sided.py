"""A small decoder over two KV pools, one of them with a sliding window, with runner and checks.

Layers of one window share a pool with pages of its own; a request holds virtual pages, which the
windowed side binds while some row can still see them. With ``prefix_lm`` the rows of a media block
see each other. Only ``firstlight.graphs`` and torch; every part can be replaced by a faulty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from firstlight.contract import InputContract, MaskKind, resolve_contract
from firstlight.core.reason import Phase
from firstlight.graphs import (
    Arena,
    AttentionNames,
    BodyInputs,
    BucketTable,
    Decider,
    Extent,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    SlotSpec,
    TapeBackend,
    body_inputs,
    body_slots,
    phase_extent,
)
from firstlight.graphs.proof import Placed, ProofLevel, Prover
from firstlight.graphs.sanitizer import (
    Footprint,
    GuardedArena,
    GuardedScratchArena,
    PagedMemory,
    Report,
    SanitizingRunner,
    TrackedRegistry,
    footprint_of_pages,
)
from firstlight.graphs.slots import BLOCK_BOUNDS

HIDDEN, HEADS, PAGE, WINDOW = 16, 2, 4, 6
PAGES, SLIDING = 28, 20  # virtual pages, which are those of the full side; of the windowed side
MAX_CONTEXT = 32
MAX_PAGES = MAX_CONTEXT // PAGE
CAPACITY = Extent(20, 3)
WINDOWED = ".window_6"
SIDES: Mapping[str, int | None] = {"": None, WINDOWED: WINDOW}
LAYERS = (WINDOWED, "", WINDOWED)


def contract_of(prefix_lm: bool) -> InputContract:
    """Rows of one segment."""
    return resolve_contract([], HIDDEN, mask=MaskKind.PREFIX_LM if prefix_lm else MaskKind.CAUSAL)


@dataclass(frozen=True)
class Metadata:
    """The body's handle: by side its three views; the blocks' bounds."""

    sides: Mapping[str, tuple[Tensor, Tensor, Tensor]]
    bounds: Tensor | None


class SidedDecoder(nn.Module):
    """Three layers of attention: over the window, over everything, over the window."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.qkv = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in LAYERS)
        self.out = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in LAYERS)
        self.norm = nn.LayerNorm(HIDDEN)
        sizes = [SLIDING if side else PAGES for side in LAYERS]
        self.keys = [torch.zeros(n, PAGE, HEADS, HIDDEN // HEADS) for n in sizes]
        self.values = [torch.zeros(n, PAGE, HEADS, HIDDEN // HEADS) for n in sizes]
        self.requires_grad_(False)

    def forward(self, inputs: BodyInputs) -> Tensor:
        """Hidden states ``[T, HIDDEN]``."""
        meta = cast(Metadata, inputs.attention)
        x = inputs.embeds
        turn = inputs.positions[0][:, None].float() * 0.3
        for layer in range(len(LAYERS)):
            x = x + self.attend(layer, x, turn, meta)
        return cast(Tensor, self.norm(x))

    def attend(self, layer: int, x: Tensor, turn: Tensor, meta: Metadata) -> Tensor:
        """Store keys and values, gather each row's pages, attend to what the row sees."""
        write, table, facts = meta.sides[LAYERS[layer]]
        q, k, v = self.qkv[layer](self.norm(x)).view(x.shape[0], 3, HEADS, -1).unbind(1)
        k = k * turn.cos()[:, None] + turn.sin()[:, None]
        keys, values = self.keys[layer].flatten(0, 1), self.values[layer].flatten(0, 1)
        keys[write] = k
        values[write] = v
        first, n, context = facts[:, :3].unbind(1)
        row = torch.arange(x.shape[0])[:, None]
        mine = (first <= row) & (row < first + n)
        request = mine.long().argmax(1)
        at = (table[request].long()[:, :, None] * PAGE + torch.arange(PAGE)).flatten(1)
        position = (context - n - first)[request][:, None] + row
        seen = self.sees(layer, position, meta.bounds) & mine.any(1, keepdim=True)
        scores = torch.einsum("thd,tshd->ths", q, keys[at])
        weights = scores.masked_fill(~seen[:, None], -1e9).softmax(-1)
        mixed = torch.einsum(
            "ths,tshd->thd", weights, values[at].masked_fill(~seen[:, :, None, None], 0)
        )
        return cast(Tensor, self.out[layer](mixed.reshape(x.shape[0], -1)))

    def sees(self, layer: int, position: Tensor, bounds: Tensor | None) -> Tensor:
        """Bool ``[T, MAX_CONTEXT]``: earlier positions in the window, and its own block."""
        j = torch.arange(MAX_CONTEXT)
        seen = j <= position
        if bounds is not None:
            seen = seen | ((j >= bounds[:, :1]) & (j < bounds[:, 1:]))
        window = self.window(layer)
        return seen if window is None else seen & (position - j < window)

    def window(self, layer: int) -> int | None:
        """How many positions a row of the layer sees."""
        return SIDES[LAYERS[layer]]


class SidedPages:
    """Virtual pages; the full side holds each at its own number, the windowed side on demand."""

    unit_tokens, max_context = PAGE, MAX_CONTEXT
    sink: int | None = 0

    def __init__(self, decoder: SidedDecoder, *, prefix_lm: bool = False) -> None:
        self._decoder = decoder
        self._prefix_lm = prefix_lm
        self.free = list(range(1, PAGES))
        self.lent: set[int] = set()
        self.bound: dict[int, int] = {}
        self.free_sliding = list(range(1, SLIDING))

    @property
    def free_units(self) -> int:
        """Virtual pages to lend."""
        return len(self.free)

    def state(self) -> Mapping[str, Tensor]:
        """Keys and values of every layer."""
        return {name: t for side in SIDES for name, t in self.pools(side).items()}

    def pools(self, side: str) -> dict[str, Tensor]:
        """Keys and values of the layers of one side."""
        d, mine = self._decoder, [i for i, name in enumerate(LAYERS) if name == side]
        keys = {f"keys {i}": d.keys[i] for i in mine}
        return keys | {f"values {i}": d.values[i] for i in mine}

    def lend(self, n: int) -> Sequence[int]:
        """Free pages from both ends of the numbering; the windowed side binds none of them yet."""
        low, high = n // 2, len(self.free) - (n - n // 2)
        given, self.free = self.free[:low] + self.free[high:], self.free[low:high]
        self.lent |= set(given)
        return given

    def give_back(self, units: Sequence[int]) -> None:
        """Free pages again, on both sides."""
        self.lent -= set(units)
        self.free = sorted([*self.free, *units])
        self._unbind(units)

    def fits(self, requests: Sequence[tuple[int, int]]) -> bool:
        """Whether the windowed side has a page for each that a request sees."""
        pages = [range(-(-end // PAGE)) for _, end in requests]
        placed = [Placed(tuple(p), *r) for p, r in zip(pages, requests, strict=True)]
        return sum(len(p.units_seen(WINDOW, PAGE)) for p in placed) < SLIDING

    def bind(self, requests: Sequence[Placed]) -> None:
        """Let the windowed side hold what the requests' windows reach."""
        wanted = {unit for r in requests for unit in r.units_seen(WINDOW, PAGE)}
        self._unbind([unit for unit in self.lent if unit not in wanted])
        for unit in sorted(wanted - self.bound.keys()):
            self.bound[unit] = self.free_sliding.pop(0)

    def _unbind(self, units: Sequence[int]) -> None:
        back = [self.bound.pop(unit) for unit in units if unit in self.bound]
        self.free_sliding = sorted([*self.free_sliding, *back])

    def rows(self, name: str, units: Sequence[int]) -> Sequence[int]:
        """Physical pages of a tensor's side."""
        side = LAYERS[int(name[-1])]
        return [unit if not side else self.bound.get(unit, 0) for unit in units]

    def window(self, name: str) -> int | None:
        """Of a tensor's side."""
        return SIDES[LAYERS[int(name[-1])]]

    def physical(self, side: str, unit: int) -> int:
        """Where a virtual page lies on a side, as metadata translates it."""
        return unit if side == "" else self.bound.get(unit, 0)

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        """The attention slots of both sides, and the media blocks' bounds."""
        found: dict[str, Tensor] = {}
        for side in SIDES:
            names = AttentionNames(side)
            table = torch.zeros(len(requests), MAX_PAGES, dtype=torch.int32)
            facts, places, first = [], [], 0
            for row, r in zip(table, requests, strict=True):
                low = r.first_seen(SIDES[side]) // PAGE
                for column in range(low, -(-r.end // PAGE)):
                    row[column] = self.physical(side, r.units[column])
                facts.append([first, len(r), r.end, -1])
                places += [self.place(row, p) for p in range(r.start, r.end)]
                first += len(r)
            found |= {
                names.write_locations: torch.tensor(places),
                names.page_table: table,
                names.attention_rows: torch.tensor(facts),
            }
        if self._prefix_lm:
            found[BLOCK_BOUNDS] = torch.tensor([b for r in requests for b in bounds_of(r)])
        return found

    def place(self, row: Tensor, position: int) -> int:
        """The token slot of a position by a page table row."""
        return int(row[position // PAGE]) * PAGE + position % PAGE


def bounds_of(request: Placed) -> list[tuple[int, int]]:
    """For each computed row, its block's positions; its own alone outside of blocks."""
    found = {p: (p, p + 1) for p in range(request.start, request.end)}
    for low, high in request.blocks:
        found |= {p: (low, high) for p in range(low, high) if p in found}
    return list(found.values())


@dataclass
class Parts:
    """What a rig is built of; a mutation replaces one of them."""

    decoder: Callable[[], SidedDecoder] = SidedDecoder
    memory: Callable[..., SidedPages] = SidedPages
    specs: Callable[[list[SlotSpec]], list[SlotSpec]] = lambda specs: specs
    prefix_lm: bool = False


def slots_of(contract: InputContract) -> list[SlotSpec]:
    """The slots of both sides."""
    return body_slots(contract, torch.float32, max_pages=MAX_PAGES, sides=tuple(SIDES))


class SidedRig:
    """Decoder, slots, runner: plain and proven, or sanitized where there is a ``report``."""

    def __init__(
        self,
        parts: Parts | None = None,
        *,
        report: Report | None = None,
        level: ProofLevel = ProofLevel.FULL,
        phase: Phase = Phase.PREFILL,
        capacity: Extent = CAPACITY,
        buckets: tuple[int, ...] = (8, 16),
    ) -> None:
        parts = Parts() if parts is None else parts
        self.contract = contract_of(parts.prefix_lm)
        self.decoder = parts.decoder()
        self.memory = parts.memory(self.decoder, prefix_lm=parts.prefix_lm)
        guarded = GuardedArena()
        self.registry = (
            SlotRegistry(capacity, Arena())
            if report is None
            else TrackedRegistry(capacity, guarded)
        )
        for spec in parts.specs(slots_of(self.contract)):
            self.registry.register(spec)
        self.registry.allocate()
        self.owned = Ownership()
        for name, tensor in self.memory.state().items():
            self.owned.add(tensor, name)
        self.owned.add_module(self.decoder)
        self.buckets = BucketTable(buckets)
        level = level if report is None else ProofLevel.OFF
        self.prover = Prover(self.contract, self.memory, level=level)
        self.sides = [PagedMemory(self.memory.pools(s), PAGE, s, w) for s, w in SIDES.items()]
        settings: dict[str, Any] = {
            "registry": self.registry,
            "buckets": self.buckets,
            "backend": TapeBackend(None if report is None else GuardedScratchArena()),
            "body": lambda inputs: self.decoder(inputs),
            "decider": Decider(
                phase, self.buckets, capacity.requests, MAX_CONTEXT, PaddingIsFree()
            ),
            "inputs": self.inputs,
            "owned": self.owned,
            "prover": self.prover,
        }
        checks: dict[str, Any] = {"report": report, "arena": guarded, "memory": self.sides}
        self.runner: GraphRunner = (
            GraphRunner(phase, **settings)
            if report is None
            else SanitizingRunner(phase, **checks, **settings)
        )

    def inputs(self, rows: int) -> BodyInputs:
        """Views of the slots."""
        extent = phase_extent(self.runner.phase, rows, self.registry.capacity)
        return body_inputs(self.registry, self.contract, extent, self.attention)

    def attention(self, slots: SlotRegistry, extent: Extent) -> Metadata:
        """Views of the metadata slots."""
        sides = {}
        for side in SIDES:
            write, table, facts = (slots.view(n, extent) for n in AttentionNames(side).all)
            sides[side] = (write, table, facts)
        bounds = slots.view(BLOCK_BOUNDS, extent) if slots.has(BLOCK_BOUNDS) else None
        return Metadata(sides, bounds)

    def findings(self) -> list[str]:
        """Capture and prove everything; every finding in words."""
        report = self.runner.capture_all()
        assert not report.failures, report.failures
        return [str(f) for b in report.buckets if b.proof is not None for f in b.proof.findings]

    def unread(self) -> list[str]:
        """Capture and prove everything; declared inputs without effect."""
        proof = self.runner.capture_all().proof
        return [] if proof is None else [finding.where for finding in proof.unread]

    def serve(self) -> None:
        """Prompts; a chunk beside a decoded row; beyond the window; one request alone."""
        a, b = (5, 2, 9, 4, 11), (7, 3, 8, 1)
        self.batch(Placed(a, 0, 9, ((2, 5), (5, 8))), Placed(b, 0, 6, ((1, 4),)))
        self.batch(Placed(b, 6, 7, ((1, 4),)), Placed(a, 9, 15, ((2, 5), (5, 8), (10, 13))))
        self.batch(Placed(a, 15, 16), Placed(b, 7, 13, ((7, 9),)))
        self.batch(Placed(a, 16, 17))

    def batch(self, *requests: Placed) -> Tensor:
        """Run random rows for these positions; live hidden states."""
        n = sum(map(len, requests))
        self.memory.bind(requests)
        natural = torch.cat([torch.arange(r.start, r.end) for r in requests])
        values: dict[str, Tensor | None] = {
            **self.memory.values(requests), "positions": natural[None],
        }  # fmt: skip
        live = Extent(n, len(requests))
        decision = self.runner.decide(live, max(r.end for r in requests))
        if isinstance(self.runner, SanitizingRunner):
            self.runner.expect(self.footprints(requests))
        self.runner.fill(values, live, decision)
        with torch.inference_mode():
            rows = torch.randn(n, HIDDEN, generator=torch.Generator().manual_seed(n))
            self.runner.embeds(n).copy_(rows)
            return self.runner.run(decision)

    def footprints(self, requests: Sequence[Placed]) -> dict[str, Footprint]:
        """What a batch may touch of each side, from its pages and not from its metadata."""
        found = {}
        for side in self.sides:
            pages = [
                torch.tensor([u if not side.suffix else self.memory.bound.get(u, 0) for u in units])
                for units in (r.units for r in requests)
            ]
            facts = [(p, r.start, r.end) for p, r in zip(pages, requests, strict=True)]
            found[side.suffix] = footprint_of_pages(facts, side)
        return found
