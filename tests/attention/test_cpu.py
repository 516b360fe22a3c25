"""The kernel equals attention by its definition, wherever the pages lie and however it is fed."""

from __future__ import annotations

import pytest
import torch

from tests.attention.oracle import Whole
from tests.attention.paged import PAD, Paged, Part

PAGINGS = {"one run": [[3, 4, 5], [9, 10, 11]], "scattered": [[7, 2, 5], [1, 12, 3]]}
WINDOWS = (0, 5)


def two(paging: str) -> Paged:
    requests = [Whole.random(11, seed=1), Whole.random(9, seed=2)]
    return Paged(requests, page_size=4, windows=WINDOWS, pages=PAGINGS[paging])


def chunks(request: int, n: int, size: int, start: int = 0) -> list[Part]:
    return [(request, a, min(a + size, n)) for a in range(start, n, size)]


@pytest.mark.parametrize("paging", PAGINGS)
@pytest.mark.parametrize("chunk", [1, 3, 11])
def test_chunks_over_pages_equal_attention_by_definition(paging: str, chunk: int) -> None:
    memory = two(paging)
    for part in chunks(0, 11, chunk) + chunks(1, 9, chunk):
        memory.check([part])


@pytest.mark.parametrize("paging", PAGINGS)
def test_requests_of_one_batch_do_not_see_each_other(paging: str) -> None:
    memory = two(paging)
    memory.check([(0, 0, 10), (1, 0, 8)], padding=12)
    memory.check([(0, 10, 11), (1, 8, 9)], padding=0)


@pytest.mark.parametrize("paging", PAGINGS)
def test_decode_rows_and_chunks_go_together_in_any_order(paging: str) -> None:
    requests = [Whole.random(9, seed=s) for s in range(4)]
    pages = [[2 + 3 * i, 3 + 3 * i, 4 + 3 * i] for i in range(4)]
    if paging == "scattered":
        pages = [row[::-1] for row in pages]
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [0, 2, 1, 3]):
        memory = Paged(requests, page_size=4, windows=WINDOWS, pages=pages)
        memory.check([(i, 0, 4) for i in range(4)])
        ends = {0: 5, 1: 5, 2: 9, 3: 7}
        memory.check([(i, 4, ends[i]) for i in order], padding=5)
        memory.check([(i, ends[i] - 1, ends[i]) for i in order], padding=1)


@pytest.mark.parametrize("paging", PAGINGS)
def test_the_last_rows_alone_equal_those_of_the_whole_batch(paging: str) -> None:
    memory = two(paging)
    memory.check([(1, 0, 3)])
    memory.check([(0, 0, 11), (1, 3, 9)], padding=3)
    memory.check([(0, 0, 11), (1, 3, 9)], padding=3, last=True)


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (4, 1)])
def test_heads_share_keys_in_groups_of_any_size(heads: tuple[int, int]) -> None:
    whole = Whole.random(20, seed=3, heads=heads[0], kv_heads=heads[1], dims=(8, 6))
    memory = Paged([whole], page_size=4, windows=(0, 7), seed=5)
    for part in [(0, 0, 6), (0, 6, 19), (0, 19, 20)]:
        memory.check([part])


def test_rows_may_be_strided_views_of_a_packed_projection() -> None:
    whole = Whole.random(10, seed=4)
    memory = Paged([whole], page_size=4)
    packed = torch.cat([whole.q, whole.k, whole.v], dim=1)
    views = Whole(packed[:, :4], packed[:, 4:6], packed[:, 6:])
    memory.requests = [views]
    for part in [(0, 0, 6), (0, 6, 9), (0, 9, 10)]:
        memory.check([part], padding=0)


@pytest.mark.parametrize("seed", [None, 6])
def test_bfloat16_stays_within_its_own_rounding(seed: int | None) -> None:
    whole = Whole.random(70, seed=5)
    q, k, v = (t.bfloat16().float() for t in (whole.q, whole.k, whole.v))
    memory = Paged([Whole(q, k, v)], page_size=4, windows=(0, 16), seed=seed, dtype=torch.bfloat16)
    for part in [(0, 0, 30), (0, 30, 69), (0, 69, 70)]:
        memory.check([part], atol=2e-2)


def test_only_write_locations_change_in_the_pool() -> None:
    """Whatever padding rows bring, the last page of the pool above all, stays as it was."""
    requests = [Whole.random(8, seed=1), Whole.random(8, seed=2)]
    memory = Paged(requests, page_size=4, windows=WINDOWS, pages=[[2, 5], [3, 4]])
    for tensor in (*memory.pool.keys, *memory.pool.values):
        tensor.normal_()
    for layer in range(2):
        before = memory.pool.keys[layer].clone(), memory.pool.values[layer].clone()
        memory.step([(1, 0, 5)], layer=layer, padding=8)
        written = torch.tensor([int(memory.maps[layer].physical(p)) for p in memory.pages[1]])
        after = memory.pool.keys[layer], memory.pool.values[layer]
        for tensor, old, new in zip(after, before, ("k", "v"), strict=True):
            pages = tensor.clone()
            rows = pages[written].flatten(0, 1)
            assert torch.equal(rows[:5], getattr(requests[1], new)[:5])
            rows[:5] = old[written].flatten(0, 1)[:5]
            pages[written] = rows.view(2, 4, *rows.shape[1:])
            sink_token = pages[0, 0].clone()
            assert torch.equal(sink_token, torch.full_like(sink_token, PAD))
            pages[0, 0] = old[0, 0]
            assert torch.equal(pages, old)


@pytest.mark.parametrize("paging", PAGINGS)
def test_a_request_gets_the_same_bits_alone_and_in_company(paging: str) -> None:
    memory = two(paging)
    memory.check([(0, 0, 10), (1, 0, 8)])
    for layer in range(2):
        alone = [memory.step([part], layer=layer) for part in [(0, 10, 11), (1, 8, 9)]]
        both = memory.step([(0, 10, 11), (1, 8, 9)], layer=layer)
        torch.testing.assert_close(both, torch.cat(alone), atol=1e-6, rtol=0)
