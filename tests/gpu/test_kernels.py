"""Triton kernels equal the CPU's functions: in Triton's interpreter, or on a GPU where one is."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
pytest.importorskip("triton", reason="triton is not installed; no CPU build of torch brings it")

from firstlight.attention import RowsInMemory, attention_values  # noqa: E402
from firstlight.attention.layer_memory import LayerMemory  # noqa: E402
from firstlight.engine.merge import _write_text  # noqa: E402
from firstlight.gpu.pages import translate  # noqa: E402
from firstlight.gpu.rows import scatter_rows, store_rows  # noqa: E402
from firstlight.memory import KVLayout, PageMap, PhysicalPage, VirtualPage  # noqa: E402

pytestmark = [pytest.mark.cuda] if DEVICE == "cuda" else []
DTYPES = [torch.float32, torch.bfloat16]


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [t.to(DEVICE) for t in tensors]


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    rows=st.integers(0, 9), heads=st.integers(1, 3), dims=st.sampled_from([(8, 8), (24, 5)]),
    page_size=st.sampled_from([1, 16]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=15)
def test_keys_and_values_go_where_the_cpu_puts_them(
    dtype: torch.dtype, rows: int, heads: int, dims: tuple[int, int], page_size: int, seed: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    k, v = (torch.randn(rows, heads, d, generator=g).to(dtype) for d in dims)
    pools = [
        torch.randn(heads, 7, page_size, d, generator=g).to(dtype).permute(1, 2, 0, 3) for d in dims
    ]
    n = min(rows, 7 * page_size)
    places = torch.randperm(7 * page_size, generator=g)[:n]
    k, v = k[:n], v[:n]
    k_pool, v_pool = (p.to(DEVICE, copy=True) for p in pools)
    k_there, v_there, there = on_device(k, v, places)
    store_rows(k_there, v_there, k_pool, v_pool, there)
    LayerMemory.of(pools[0], pools[1], torch.zeros(1, 1)).store(places, k, v)
    assert torch.equal(k_pool.cpu(), pools[0])
    assert torch.equal(v_pool.cpu(), pools[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "total"), [(8, 8), (8, 24), (64, 2600)])
def test_text_rows_of_several_runs_are_one_scatter(
    dtype: torch.dtype, width: int, total: int
) -> None:
    runs = [(0, 3), (5, 1), (9, 2)]
    rows = torch.randn(6, width).to(dtype)
    want = torch.full((12, total), torch.nan, dtype=dtype)
    got = want.to(DEVICE, copy=True)
    _write_text(want, runs, rows)
    places = torch.tensor([row + i for row, n in runs for i in range(n)])
    scatter_rows(got, *on_device(rows, places))
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


@st.composite
def requests(draw: st.DrawFn, page_size: int) -> list[RowsInMemory]:
    found = []
    pages = draw(st.permutations(range(1, 60)))
    for _ in range(draw(st.integers(1, 4))):
        start, rows = draw(st.integers(0, 12 * page_size // 2)), draw(st.integers(1, page_size * 3))
        n = -(-(start + rows) // page_size)
        own, pages = pages[:n], pages[n:]
        found.append(RowsInMemory([VirtualPage(p) for p in own], start, start + rows))
    return found


@pytest.mark.parametrize("page_size", [1, 2, 16])
@pytest.mark.parametrize("window", [0, 1, 7])
@given(data=st.data())
@settings(max_examples=10)
def test_pages_are_translated_as_on_the_host(
    page_size: int, window: int, data: st.DataObject
) -> None:
    """Virtual pages are bound anywhere; a second translation would go elsewhere."""
    batch = data.draw(requests(page_size))
    bound = PageMap(64)
    places = data.draw(st.permutations(range(1, 60)))
    for page, place in zip([p for r in batch for p in r.pages], places, strict=False):
        bound.bind(page, PhysicalPage(place))
    max_pages, idle = max(len(r.pages) for r in batch) + 1, 1
    side = KVLayout.of([window or None], max_context=10**6).sides[0]
    values = attention_values(
        batch, sides=[(side, bound)], page_size=page_size, max_pages=max_pages
    )
    want = {name.partition(".")[0]: value for name, value in values.items()}
    virtual = torch.zeros(len(batch) + idle, max_pages, dtype=torch.int32)
    for i, request in enumerate(batch):
        virtual[i, : len(request.pages)] = torch.tensor(request.pages)
    physical = torch.from_numpy(bound.translate(torch.arange(64).numpy())).int()
    facts = torch.cat([want["attention_rows"], torch.zeros(idle, 4, dtype=torch.int64)])
    table = torch.full_like(virtual, -7)
    locations = torch.zeros_like(want["write_locations"])
    got = on_device(virtual, physical, facts, table, locations)
    translate(*got, page_size=page_size, window=window)
    assert torch.equal(got[3][: len(batch)].cpu(), want["page_table"])
    assert not got[3][len(batch) :].any()
    assert torch.equal(got[4].cpu(), want["write_locations"])


def test_the_worked_example_of_two_sides() -> None:
    """Virtual [0, 1] lies at 2 and 5: at a page size of 2 a map by token slots would give 1."""
    for page_size in (1, 2):
        virtual = torch.tensor([[0, 1]], dtype=torch.int32)
        physical = torch.tensor([2, 5], dtype=torch.int32)
        facts = torch.tensor([[0, 1, 2 * page_size, -1]])
        got = on_device(virtual, physical, facts, torch.zeros_like(virtual), torch.zeros(1).long())
        translate(*got, page_size=page_size)
        assert got[3].tolist() == [[2, 5]]
        assert got[4].tolist() == [6 * page_size - 1]


def test_pages_that_are_not_bound_or_no_pages_are_the_sink() -> None:
    virtual = torch.tensor([[1, 2, -1, 99]], dtype=torch.int32)
    physical = torch.tensor([0, 3, -1], dtype=torch.int32)
    facts = torch.tensor([[0, 2, 8, -1]])
    got = on_device(
        virtual, physical, facts, torch.full_like(virtual, 9), torch.full((2,), 9).long()
    )
    translate(*got, page_size=2)
    assert got[3].tolist() == [[3, 0, 0, 0]]
    assert got[4].tolist() == [0, 0]
