from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from firstlight.attention import RowsInMemory, attention_op, attention_values
from firstlight.errors import SlotError
from firstlight.memory import KVPool, LayerShape, PhysicalPage

HEADS, KV_HEADS, DIM = 4, 2, 8


def dense(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attention by its definition, in float64: the last len(q) positions over all of k, v."""
    rows, n = q.shape[0], k.shape[0]
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1).double() for t in (k, v))
    scores = torch.einsum("thd,nhd->htn", q.double(), k) / math.sqrt(DIM)
    behind = torch.arange(n - rows, n)[:, None] - torch.arange(n)[None]
    hidden = (behind < 0) | (
        (behind >= window) if window else torch.zeros_like(behind, dtype=torch.bool)
    )
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("htn,nhd->thd", weights, v).float()


class Memory:
    """A pool of one layer and the requests' full keys, values and queries beside it."""

    def __init__(self, lengths: list[int], pages: list[list[int]], page_size: int) -> None:
        generator = torch.Generator().manual_seed(7)

        def random(n: int, heads: int) -> Tensor:
            return torch.randn(n, heads, DIM, generator=generator)

        self.pool = KVPool(
            [LayerShape(KV_HEADS, DIM, DIM)],
            n_pages=32,
            page_size=page_size,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.pages = [[PhysicalPage(p) for p in row] for row in pages]
        self.q = [random(n, HEADS) for n in lengths]
        self.k = [random(n, KV_HEADS) for n in lengths]
        self.v = [random(n, KV_HEADS) for n in lengths]

    def step(
        self, parts: list[tuple[int, int, int]], padded: int, window: int = 0, *, last: bool = False
    ) -> Tensor:
        """Compute positions [start, end) of the named requests in one batch of ``padded`` rows.

        With ``last`` only the last row of each request asks.
        """
        values = attention_values(
            [RowsInMemory(self.pages[i], a, b) for i, a, b in parts],
            page_size=self.pool.page_size,
            max_pages=8,
        )

        def rows(of: list[Tensor]) -> Tensor:
            live = torch.cat([of[i][a:b] for i, a, b in parts])
            pad = torch.full((padded - len(live), *live.shape[1:]), 3.0)
            return torch.cat([live, pad])

        locations = torch.zeros(padded, dtype=torch.int64)
        locations[: len(values["write_locations"])] = values["write_locations"]
        q = torch.stack([self.q[i][b - 1] for i, _, b in parts]) if last else rows(self.q)
        out = torch.full((len(q), HEADS, DIM), math.nan)
        attention_op()(
            *(q, rows(self.k), rows(self.v)),
            *(self.pool.keys[0], self.pool.values[0], locations, values["page_table"]),
            *(values["attention_rows"], out, DIM**-0.5, window, last),
        )
        return out


PAGINGS = {"one run": [[3, 4, 5], [9, 10, 11]], "scattered": [[7, 2, 5], [1, 12, 3]]}


@pytest.mark.parametrize("paging", PAGINGS)
@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("chunk", [1, 3, 11])
def test_chunks_over_pages_equal_attention_by_definition(
    paging: str, window: int, chunk: int
) -> None:
    memory = Memory([11, 9], PAGINGS[paging], page_size=4)
    for i, n in ((0, 11), (1, 9)):
        for start in range(0, n, chunk):
            end = min(start + chunk, n)
            out = memory.step([(i, start, end)], padded=end - start + 2, window=window)
            want = dense(memory.q[i][start:end], memory.k[i][:end], memory.v[i][:end], window)
            torch.testing.assert_close(out[: end - start], want, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("paging", PAGINGS)
def test_requests_of_one_batch_do_not_see_each_other(paging: str) -> None:
    memory = Memory([11, 9], PAGINGS[paging], page_size=4)
    together = memory.step([(0, 0, 11), (1, 0, 9)], padded=32)
    want = [dense(memory.q[i], memory.k[i], memory.v[i], 0) for i in (0, 1)]
    torch.testing.assert_close(together[:20], torch.cat(want), atol=2e-6, rtol=1e-5)
    both = memory.step([(0, 10, 11), (1, 8, 9)], padded=2)
    torch.testing.assert_close(both, torch.stack([want[0][-1], want[1][-1]]), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("paging", PAGINGS)
@pytest.mark.parametrize("window", [0, 5])
def test_the_last_rows_alone_equal_those_of_the_whole_batch(paging: str, window: int) -> None:
    parts = [(0, 0, 11), (1, 3, 9)]
    memory = Memory([11, 9], PAGINGS[paging], page_size=4)
    memory.step([(1, 0, 3)], padded=4)
    whole = memory.step(parts, padded=20, window=window)
    last = memory.step(parts, padded=20, window=window, last=True)
    torch.testing.assert_close(last, whole[[10, 16]], atol=2e-6, rtol=1e-5)


def test_padding_rows_come_out_zero_and_write_only_to_the_sink() -> None:
    memory = Memory([5], [[2, 3]], page_size=4)
    out = memory.step([(0, 0, 5)], padded=16)
    assert torch.equal(out[5:], torch.zeros(11, HEADS, DIM))
    untouched = [p for p in range(32) if p not in (0, 2, 3)]
    assert not memory.pool.keys[0][untouched].any()


def test_metadata_refuses_positions_beyond_the_pages_held() -> None:
    with pytest.raises(SlotError, match=r"9 tokens need 3 pages of 4; the request holds 2"):
        attention_values([RowsInMemory([PhysicalPage(1)] * 2, 0, 9)], page_size=4, max_pages=8)


def test_only_a_run_of_pages_gets_a_run_start() -> None:
    rows = [[4, 5, 6], [4, 6, 5], [6, 5, 4], [4, 4, 6]]
    values = attention_values(
        [RowsInMemory([PhysicalPage(p) for p in r], 0, 3) for r in rows], page_size=1, max_pages=3
    )
    assert values["attention_rows"][:, 3].tolist() == [4, -1, -1, -1]
