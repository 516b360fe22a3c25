"""Pools: one number of pages a side, fixed addresses, heads apart in memory."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from firstlight.engine.resident import touched
from firstlight.errors import ConfigError
from firstlight.memory import KVLayout, KVPool, LayerShape

SHAPES = [LayerShape(2, 8, 6), LayerShape(1, 4, 4), LayerShape(2, 8, 6)]


def pool(**changes: Any) -> KVPool:
    arguments: dict[str, Any] = {
        "layout": KVLayout.of([None, 16, 16], max_context=64),
        "n_pages": [9, 4],
        "page_size": 8,
        "dtype": torch.float32,
        "device": torch.device("cpu"),
    }
    return KVPool(SHAPES, **(arguments | changes))


def test_each_layer_has_the_pages_of_its_side() -> None:
    made = pool()
    assert [tuple(k.shape) for k in made.keys] == [(9, 8, 2, 8), (4, 8, 1, 4), (4, 8, 2, 8)]
    assert [tuple(v.shape) for v in made.values] == [(9, 8, 2, 6), (4, 8, 1, 4), (4, 8, 2, 6)]
    assert not any(t.any() for t in (*made.keys, *made.values))


def test_bytes_are_those_of_the_pages_of_both_sides() -> None:
    made = pool()
    per_page = [
        KVPool.bytes_per_page([s for s, of in zip(SHAPES, (0, 1, 1), strict=True) if of == side],
                              8, torch.float32)
        for side in (0, 1)
    ]  # fmt: skip
    assert made.nbytes == 9 * per_page[0] + 4 * per_page[1]
    assert made.nbytes == sum(t.untyped_storage().nbytes() for t in (*made.keys, *made.values))


def test_the_tokens_of_a_head_lie_behind_each_other() -> None:
    keys = pool().keys[0]
    head = keys[:, :, 1].flatten(0, 1)
    assert head.is_contiguous()
    assert head.data_ptr() == keys[0, 0, 1].data_ptr()


@pytest.mark.parametrize("page_size", [0, 3, 24, -8])
def test_page_sizes_are_powers_of_two(page_size: int) -> None:
    with pytest.raises(ConfigError, match=f"page_size = {page_size}"):
        pool(page_size=page_size)


def test_numbers_that_do_not_go_with_the_layout_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 layers and 1 page counts"):
        pool(n_pages=[9])
    with pytest.raises(ConfigError, match="layout of 2 layers and 1 sides"):
        pool(layout=KVLayout.of([None, None], max_context=64), n_pages=[9])


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells it on Linux")
def test_a_pool_is_resident_as_a_whole_once_it_was_prefaulted() -> None:
    made = pool(n_pages=[4096, 4096])
    tensors = (*made.keys, *made.values)
    assert touched(tensors) == 0
    made.prefault()
    assert touched(tensors) == made.nbytes
    assert not any(t.any() for t in tensors)


def test_a_pool_that_the_system_refuses_names_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"no memory for 72057594037927936 KV pages.*kv_bytes"):
        pool(n_pages=[1 << 56, 4])


def test_rows_are_copied_on_the_side_of_each_layer_and_no_other_page_is_written() -> None:
    made = pool()
    tensors = (*made.keys, *made.values)
    for tensor in tensors:
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape))
    before = [tensor.clone() for tensor in tensors]
    made.copy_rows([(3, 7), (1, 2)], rows=5)
    for tensor, old, side in zip(tensors, before, (0, 1, 1) * 2, strict=True):
        source, target = ((3, 7), (1, 2))[side]
        assert torch.equal(tensor[target, :5], old[source, :5])
        others = [page for page in range(len(old)) if page != target]
        assert torch.equal(tensor[others], old[others])
    with pytest.raises(ValueError, match="9 rows of pages of 8"):
        made.copy_rows([(3, 7), (1, 2)], rows=9)
