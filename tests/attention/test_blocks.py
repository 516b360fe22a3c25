"""Prefix-LM media: the rows of a block see each other, whatever pages, chunks and windows do."""

from __future__ import annotations

import pytest
import torch

from tests.attention.oracle import Whole
from tests.attention.paged import Paged, Part

BLOCKS = [(3, 9), (9, 12), (20, 34)]
CHUNKS: dict[str, list[Part]] = {
    "one chunk": [(0, 0, 40)],
    "cut in text": [(0, 0, 2), (0, 2, 15), (0, 15, 40)],
    "cut between blocks": [(0, 0, 9), (0, 9, 20), (0, 20, 34), (0, 34, 40)],
}


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_rows_of_a_block_see_all_of_it(chunks: str, seed: int | None) -> None:
    """Windows shorter than a block, longer than one, and none."""
    whole = Whole.random(44, seed=1, blocks=BLOCKS)
    memory = Paged([whole], page_size=4, windows=(0, 5, 10, 30), seed=seed)
    for part in CHUNKS[chunks] + [(0, p, p + 1) for p in range(40, 44)]:
        memory.check([part])


def test_the_last_row_alone_equals_that_of_the_whole_chunk() -> None:
    whole = Whole.random(34, seed=2, blocks=BLOCKS)
    memory = Paged([whole], page_size=4, windows=(0, 5))
    memory.check([(0, 0, 12)], last=True)
    memory.check([(0, 12, 34)], last=True)


def test_blocks_longer_than_a_tile_and_behind_a_long_prefix() -> None:
    whole = Whole.random(620, seed=3, blocks=[(10, 266), (300, 556)])
    memory = Paged([whole], page_size=16, windows=(0, 100, 512), seed=4)
    for part in [(0, 0, 280), (0, 280, 600), (0, 600, 620)]:
        memory.check([part])


def test_blocks_of_one_request_are_nothing_to_another() -> None:
    requests = [
        Whole.random(12, seed=1, blocks=[(2, 10)]),
        Whole.random(12, seed=2),
        Whole.random(12, seed=3, blocks=[(0, 4), (8, 12)]),
    ]
    memory = Paged(requests, page_size=4, windows=(0, 3))
    memory.check([(1, 0, 11), (0, 0, 1)])
    memory.check([(1, 11, 12), (0, 1, 12), (2, 0, 12)], padding=4)


def test_a_later_row_of_the_block_counts_and_one_behind_it_does_not() -> None:
    whole = Whole.random(12, seed=4, blocks=[(4, 8)])
    row = Paged([whole], page_size=4).step([(0, 0, 12)])[5]
    for position, matters in ((7, True), (8, False)):
        changed = Whole(whole.q, whole.k.clone(), whole.v, whole.blocks)
        changed.k[position] += 1
        other = Paged([changed], page_size=4).step([(0, 0, 12)])[5]
        assert other.equal(row) is not matters


@pytest.mark.parametrize("window", [4, 20])
def test_the_rule_is_that_of_the_masks_of_gemma_3(window: int) -> None:
    """transformers' own masks for the same blocks, where a window also cuts a block."""
    from transformers import Gemma3TextConfig
    from transformers.models.gemma3 import modeling_gemma3 as gemma3

    n, blocks = 14, [(3, 9), (11, 13)]
    config = Gemma3TextConfig(
        num_hidden_layers=2,
        sliding_window=window,
        layer_types=["sliding_attention", "full_attention"],
    )
    config._attn_implementation = "eager"
    types = torch.zeros(1, n, dtype=torch.int64)
    for low, high in blocks:
        types[0, low:high] = 1
    masks = gemma3.create_masks_for_vision_model(
        config,
        inputs_embeds=torch.zeros(1, n, 8),
        attention_mask=None,
        cache=None,
        position_ids=torch.arange(n).unsqueeze(0),
        block_sequence_ids=gemma3.get_block_sequence_ids_for_mask(types),
    )
    whole = Whole.random(n, seed=1, blocks=blocks)
    assert torch.equal(masks["full_attention"][0, 0] == 0, whole.seen(0))
    assert torch.equal(masks["sliding_attention"][0, 0] == 0, whole.seen(window))
