"""Paged memory with one layer a side, and steps over it as an engine makes them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.attention import (
    AttentionLayer,
    PagedAttention,
    RowsInMemory,
    SideViews,
    attention_values,
    slot_suffix,
)
from firstlight.attention.metadata import BLOCK_BOUNDS
from firstlight.memory import (
    IdentityMap,
    KVLayout,
    KVPool,
    LayerShape,
    PageMap,
    PhysicalPage,
    VirtualPage,
)
from tests.attention.oracle import Whole

Part = tuple[int, int, int]  # request, start, end
PAD = 3.0  # what padding rows bring as query, key and value


class Paged:
    """Requests' pages in a pool; each side's pages lie where ``seed`` puts them.

    Args:
        windows: one layer each; 0 is none.
        pages: each request's virtual pages; by default in one run each, on every side.
    """

    def __init__(
        self,
        requests: Sequence[Whole],
        *,
        page_size: int,
        windows: Sequence[int] = (0,),
        pages: Sequence[Sequence[int]] | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.requests = requests
        self.prefix_lm = any(r.blocks for r in requests)
        counts = [-(-len(r.q) // page_size) for r in requests]
        numbers = list(range(1, sum(counts) + 1))
        order = random.Random(seed)
        if seed is not None:
            order.shuffle(numbers)
        if pages is None:
            ends = [sum(counts[: i + 1]) for i in range(len(counts))]
            pages = [numbers[end - n : end] for end, n in zip(ends, counts, strict=True)]
        self.pages = [[VirtualPage(p) for p in row] for row in pages]
        n_pages = max((p for row in pages for p in row), default=0) + 2
        self.layout = KVLayout.of([w or None for w in windows], max_context=10**6)
        self.maps: list[IdentityMap | PageMap] = []
        for side in self.layout.sides:
            self.maps.append(
                IdentityMap(n_pages)
                if side.window is None
                else _bound(self.pages, n_pages, order if seed is not None else None)
            )
        shape = requests[0]
        self.pool = KVPool(
            [LayerShape(shape.k.shape[1], shape.k.shape[2], shape.v.shape[2])] * len(windows),
            layout=self.layout,
            n_pages=[n_pages] * len(self.layout.sides),
            page_size=page_size,
            dtype=dtype,
            device=torch.device("cpu"),
        )
        self.windows = windows
        self.max_pages = max(map(len, self.pages)) + 1

    def values(self, parts: Sequence[Part]) -> dict[str, Tensor]:
        """The step's metadata."""
        return attention_values(
            [RowsInMemory(self.pages[i], a, b, self.requests[i].blocks) for i, a, b in parts],
            sides=list(zip(self.layout.sides, self.maps, strict=True)),
            page_size=self.pool.page_size,
            max_pages=self.max_pages,
            prefix_lm=self.prefix_lm,
        )

    def context(self, parts: Sequence[Part], *, rows: int, requests: int) -> PagedAttention:
        """The metadata in slots of this many rows and requests; what is unused is zero."""
        values = self.values(parts)

        def slot(name: str) -> Tensor:
            value = values[name]
            by_row = name == BLOCK_BOUNDS or name.startswith("write_locations")
            buffer = value.new_zeros(rows if by_row else requests, *value.shape[1:])
            buffer[: len(value)] = value
            return buffer

        sides = []
        for spec in self.layout.sides:
            names = ("write_locations", "page_table", "attention_rows")
            sides.append(SideViews(*(slot(name + slot_suffix(spec)) for name in names)))
        return PagedAttention(self.pool, sides, slot(BLOCK_BOUNDS) if self.prefix_lm else None)

    def step(
        self, parts: Sequence[Part], *, layer: int = 0, padding: int = 0, last: bool = False
    ) -> Tensor:
        """Compute the parts in one batch: ``[T + padding | B + padding, heads, dim]``."""
        dtype = self.pool.keys[0].dtype

        def rows(name: str) -> Tensor:
            live = torch.cat([getattr(self.requests[i], name)[a:b] for i, a, b in parts])
            return torch.cat([live, torch.full((padding, *live.shape[1:]), PAD)]).to(dtype)

        total = sum(b - a for _, a, b in parts) + padding
        context = self.context(parts, rows=total, requests=len(parts) + padding)
        facts = AttentionLayer(
            layer, self.requests[0].q.shape[2] ** -0.5, self.windows[layer] or None
        )
        with torch.no_grad():
            if not last:
                return context.attend(facts, rows("q"), rows("k"), rows("v"))
            asked = rows("q").index_select(0, context.last_rows())
            return context.attend_last(facts, asked, rows("k"), rows("v"))

    def check(
        self,
        parts: Sequence[Part],
        *,
        layers: Sequence[int] | None = None,
        padding: int = 2,
        last: bool = False,
        atol: float = 2e-6,
    ) -> None:
        """Run a step in the layers and compare it with attention by its definition."""
        for layer in range(len(self.windows)) if layers is None else layers:
            out = self.step(parts, layer=layer, padding=padding, last=last)
            wholes = [self.requests[i].attention(self.windows[layer]) for i, _, _ in parts]
            pieces = [
                whole[b - 1 : b] if last else whole[a:b]
                for whole, (_, a, b) in zip(wholes, parts, strict=True)
            ]
            want = torch.cat(pieces).float()
            torch.testing.assert_close(out[: len(want)].float(), want, atol=atol, rtol=1e-5)
            assert not out[len(want) :].any()
            assert not out.isnan().any()


def _bound(
    pages: Sequence[Sequence[VirtualPage]], n_pages: int, order: random.Random | None
) -> PageMap:
    """A map with all pages bound: in the requests' order, or wherever chance puts them."""
    found = PageMap(n_pages)
    held = sorted({page for row in pages for page in row})
    places = list(range(1, n_pages))
    if order is not None:
        order.shuffle(places)
    for page, place in zip(held, places, strict=False):
        found.bind(page, PhysicalPage(place))
    return found
