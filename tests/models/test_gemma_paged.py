"""Gemma 3 over paged memory with two sides: chunks, scattered pages, several requests, fused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from firstlight.attention import PagedAttention, RowsInMemory, SideViews, attention_values
from firstlight.attention.metadata import BLOCK_BOUNDS, slot_suffix
from firstlight.memory import (
    IdentityMap,
    KVLayout,
    KVPool,
    LayerShape,
    PageMap,
    PhysicalPage,
    VirtualPage,
)
from firstlight.models.fuse import fuse_model
from firstlight.models.loading import LoadedModel
from tests.conftest import TinyCheckpoint
from tests.models.dense import Prompt, compose, load, merged_rows
from tests.oracle import oracle_generate
from tests.pictures import picture

SMALL, LARGE = picture(48, 32, seed=1), picture(40, 72, seed=2)
PAGE, PAGES = 4, 64
Part = tuple[int, int, int]  # prompt, start, end


@dataclass(frozen=True)
class Inputs:
    embeds: Tensor
    positions: Tensor
    planes: dict[str, Tensor]
    attention: PagedAttention


class Served:
    """A model with prompts in paged memory; pages lie wherever chance puts them."""

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Prompt]) -> None:
        self.adapter = loaded.adapter
        self.layout = KVLayout.of([layer.window for layer in loaded.layers], loaded.max_context)
        self.pool = KVPool(
            [LayerShape(f.kv_heads, f.head_dim, f.v_head_dim) for f in loaded.layers],
            layout=self.layout,
            n_pages=[PAGES] * len(self.layout.sides),
            page_size=PAGE,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        order = random.Random(4)
        ids, places = list(range(1, PAGES)), list(range(1, PAGES))
        order.shuffle(ids)
        order.shuffle(places)
        bound = PageMap(PAGES)
        for page, place in zip(ids, places, strict=True):
            bound.bind(VirtualPage(page), PhysicalPage(place))
        self.maps = [IdentityMap(PAGES) if s.window is None else bound for s in self.layout.sides]
        self.pages = []
        for prompt in prompts:
            n = -(-len(prompt.ids) // PAGE)
            self.pages.append([VirtualPage(ids.pop()) for _ in range(n)])
        self.blocks = [self.adapter.blocks(p.spans) for p in prompts]
        with torch.no_grad():
            self.rows = [merged_rows(self.adapter, p) for p in prompts]
        self.body = self.adapter.body()

    def step(self, parts: Sequence[Part]) -> Tensor:
        """Hidden states of one batch, by row or by request."""
        values = attention_values(
            [RowsInMemory(self.pages[i], a, b, self.blocks[i]) for i, a, b in parts],
            sides=list(zip(self.layout.sides, self.maps, strict=True)),
            page_size=PAGE,
            max_pages=32,
            prefix_lm=True,
        )
        names = ("write_locations", "page_table", "attention_rows")
        sides = [SideViews(*(values[n + slot_suffix(s)] for n in names)) for s in self.layout.sides]
        rows = torch.cat([self.rows[i][a:b] for i, a, b in parts])
        positions = torch.cat([torch.arange(a, b) for _, a, b in parts])[None]
        context = PagedAttention(self.pool, sides, values[BLOCK_BOUNDS])
        with torch.no_grad():
            return self.body(Inputs(rows, positions, {}, context))


@pytest.fixture(params=[False, True], ids=["plain", "fused"])
def loaded(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    found = load(tiny_checkpoint("gemma3_vl"))
    if request.param:
        assert fuse_model(found.adapter).one_row_per_request
    return found


@pytest.fixture
def prompts(loaded: LoadedModel) -> list[Prompt]:
    return [
        compose(loaded, ["a ", SMALL, "b ", LARGE, " compare"]),
        compose(loaded, [LARGE, "What is it?"]),
        compose(loaded, ["How many circles are there in the picture?"]),
    ]


PICTURES = [[SMALL, LARGE], [LARGE], []]


def chunks(served: Served, index: int, size: int) -> list[Part]:
    """A prompt in chunks of ``size`` rows, cut before a block where they would cut one."""
    n, parts, start = len(served.rows[index]), [], 0
    while start < n:
        end = min(start + size, n)
        for low, high in served.blocks[index]:
            if low < end < high:
                end = low if low > start else high
        parts.append((index, start, end))
        start = end
    return parts


@pytest.mark.parametrize("size", [5, 18, 1000])
def test_a_prompt_in_chunks_answers_like_transformers(
    size: int, loaded: LoadedModel, prompts: list[Prompt], tiny_checkpoint: TinyCheckpoint
) -> None:
    served = Served(loaded, prompts)
    for index, prompt in enumerate(prompts):
        for part in chunks(served, index, size):
            hidden = served.step([part])
        logits = loaded.adapter.logits(hidden[-1:])[0]
        expected = oracle_generate(tiny_checkpoint("gemma3_vl"), prompt.ids, PICTURES[index], 1)
        assert (logits - expected.logits).abs().max() < 1e-4, index


def test_three_prompts_in_one_batch_answer_like_transformers(
    loaded: LoadedModel, prompts: list[Prompt], tiny_checkpoint: TinyCheckpoint
) -> None:
    served = Served(loaded, prompts)
    hidden = served.step([(i, 0, len(p.ids)) for i, p in enumerate(prompts)])
    ends = torch.tensor([len(p.ids) for p in prompts]).cumsum(0) - 1
    last = hidden if len(hidden) == len(prompts) else hidden[ends]
    logits = loaded.adapter.logits(last)
    for index, prompt in enumerate(prompts):
        expected = oracle_generate(tiny_checkpoint("gemma3_vl"), prompt.ids, PICTURES[index], 1)
        assert (logits[index] - expected.logits).abs().max() < 1e-4, index
