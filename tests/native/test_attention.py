"""Attention of rows and of tiles against the attention on torch's kernels."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from torch import Tensor

from firstlight.attention.cpu import attention_
from firstlight.attention.metadata import FEW_ROWS, SCATTERED
from firstlight.native import Kernels, can_attend
from firstlight.native.calls import FEWEST_ROWS, LARGEST_HEAD, LONGEST_SPLIT, splits_of
from tests.native.attention_cases import PADDING, Case, Memory, random_case

F32, BF16 = torch.float32, torch.bfloat16
TOLERANCE = {F32: 2e-5, BF16: 0.03}


def reference(memory: Memory) -> Tensor:
    out = memory.out()
    attention_(*memory.arguments(out))
    return out


def assert_equal_attention(case: Case) -> None:
    memory = Memory(case)
    wanted, pools = reference(memory), (memory.k_pool.clone(), memory.v_pool.clone())
    found = Memory(case)
    out = found.attend()
    assert float((out.float() - wanted.float()).abs().max()) <= TOLERANCE[case.dtype], case
    assert torch.equal(found.k_pool, pools[0])
    assert torch.equal(found.v_pool, pools[1])


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("block", range(8))
def test_random_batches_attend_as_on_torchs_kernels(
    kernels: Kernels, dtype: torch.dtype, block: int
) -> None:
    for seed in range(block * 5, block * 5 + 5):
        assert_equal_attention(random_case(seed, dtype))


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize(
    "changes",
    [
        {"group": 65, "kv_heads": 1, "chunks": ((9, 30), (1, 40))},
        {"group": 130, "kv_heads": 1, "chunks": ((70, 70),)},
        {"key_dim": LARGEST_HEAD, "value_dim": LARGEST_HEAD, "chunks": ((9, 200), (3, 150))},
        {"key_dim": 2, "value_dim": 1, "chunks": ((9, 12), (1, 12))},
        {"group": 1, "kv_heads": 9, "chunks": ((1, 1),)},
        {"window": 1, "chunks": ((9, 30), (1, 30))},
        {"window": 64, "chunks": ((70, 200), (2, 129)), "scattered": True},
    ],
)
def test_unusual_sizes_attend_too(
    kernels: Kernels, dtype: torch.dtype, changes: dict[str, object]
) -> None:
    assert_equal_attention(Case(chunks=((1, 1),), dtype=dtype).with_(**changes))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_short_requests_between_long_ones_attend(kernels: Kernels, dtype: torch.dtype) -> None:
    chunks = ((9, 40), (1, 300), (20, 20), (3, 70), (8, 8), (1, 1))
    assert_equal_attention(Case(chunks, dtype=dtype))
    assert_equal_attention(Case(chunks, dtype=dtype, window=30, scattered=True))


@pytest.mark.parametrize("rows", [1, 8])
def test_contexts_beyond_32768_tokens_attend(kernels: Kernels, rows: int) -> None:
    context = 33_100
    pages = -(-context // 64)
    assert splits_of(pages * 64)[0] == LONGEST_SPLIT
    sizes = {"kv_heads": 1, "group": 2, "key_dim": 16, "value_dim": 16, "page_size": 64}
    assert_equal_attention(Case(((rows, context),), pages=pages).with_(**sizes))


@pytest.mark.parametrize("last_only", [False, True])
def test_rows_of_no_request_become_zero(kernels: Kernels, last_only: bool) -> None:
    memory = Memory(Case(((9, 9), (1, 5)), last_only=last_only))
    if last_only:
        memory.facts[1] = 0
        assert (memory.attend()[1] == 0).all()
    else:
        assert (memory.attend()[-PADDING:] == 0).all()


def test_what_lies_beyond_a_context_is_not_read(kernels: Kernels) -> None:
    case = Case(((9, 21), (1, 18)))
    clean = Memory(case).attend()
    memory = Memory(case)
    for pool in (memory.k_pool, memory.v_pool):
        pool[0] = float("nan")  # the sink
        pool[2, 5:] = float("nan")  # behind position 20 of the first request
        pool[4, 2:] = float("nan")
    assert torch.equal(memory.attend()[:-PADDING], clean[:-PADDING])


def test_a_nan_stays_in_its_request(kernels: Kernels) -> None:
    case = Case(((9, 9), (2, 30), (20, 20)))
    clean, memory = Memory(case).attend(), Memory(case)
    memory.q[10] = float("nan")
    memory.v[9] = float("nan")
    found = memory.attend()
    assert found[9:11].isnan().all()
    assert torch.equal(found[:9], clean[:9])
    assert torch.equal(found[11:31], clean[11:31])


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("chunk", [(1, 300), (3, 200), (9, 9), (70, 170)])
def test_a_requests_bits_do_not_depend_on_the_others(
    kernels: Kernels, dtype: torch.dtype, chunk: tuple[int, int]
) -> None:
    alone = Memory(Case((chunk,), dtype=dtype))
    want = alone.attend()[: chunk[0]]
    other = Memory(Case(((5, 50), chunk, (66, 100)), dtype=dtype, seed=3))
    rows = slice(5, 5 + chunk[0])
    for name in ("q", "k", "v"):
        getattr(other, name)[rows] = getattr(alone, name)[: chunk[0]]
    for own, theirs in ((alone.k_pool, other.k_pool), (alone.v_pool, other.v_pool)):
        pages = alone.table[0].long(), other.table[1].long()
        used = -(-chunk[1] // 16)
        theirs[pages[1][:used]] = own[pages[0][:used]]
    assert torch.equal(other.attend()[rows], want)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize(
    "pieces", [(70,), (35, 35), (8, 62), (20, 33, 17), (69, 1), (1, 3, 7, 59), (7,) * 10]
)
def test_a_rows_bits_do_not_depend_on_how_a_prompt_is_cut(
    kernels: Kernels, dtype: torch.dtype, window: int, pieces: tuple[int, ...], run: bool
) -> None:
    want = Memory(Case(((70, 70),), dtype=dtype, window=window)).attend()[:70]
    whole = Memory(Case(((70, 70),), dtype=dtype, window=window))
    found, first = [], 0
    for rows in pieces:
        seen = max(first - window + 1, 0) if window else 0
        out = torch.empty(rows, *want.shape[1:], dtype=dtype)
        part = slice(first, first + rows)
        slot = 16 + seen if run else SCATTERED
        facts = torch.tensor([[0, rows, first + rows, -3 - slot if rows < FEW_ROWS else slot]])
        torch.ops.firstlight.attend_rows(
            whole.q[part], whole.k[part], whole.v[part], whole.k_pool, whole.v_pool,
            whole.locations[part], whole.table, facts, None, out, 64**-0.5, window, False,
        )  # fmt: skip
        found.append(out)
        first += rows
    assert torch.equal(torch.cat(found), want)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_rows_bits_do_not_depend_on_where_its_pages_are(
    kernels: Kernels, dtype: torch.dtype
) -> None:
    case = Case(((3, 120), (20, 90)), dtype=dtype)
    memory = Memory(case)
    want = memory.attend()
    memory.facts[:, 3] = -1
    assert torch.equal(memory.attend(), want)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_few_rows_of_a_prompt_among_many_of_others_have_the_bits_of_a_long_chunk(
    kernels: Kernels, dtype: torch.dtype
) -> None:
    whole, mixed = (Memory(Case(((20, 40), (3, 60), (1, 30)), dtype=dtype)) for _ in range(2))
    want = whole.attend()
    for part in (slice(0, 17), slice(17, 20)):  # the first request's rows, in two steps
        rows = part.stop - part.start
        mixed.facts[0] = torch.tensor([part.start, rows, 20 + part.stop, whole.facts[0, 3]])
        mixed.facts[0, 3] = -3 - whole.facts[0, 3] if rows < FEW_ROWS else whole.facts[0, 3]
        assert torch.equal(mixed.attend()[part], want[part])


def test_what_counts_as_few_rows_is_the_same_for_metadata_and_kernels() -> None:
    source = files("firstlight.native").joinpath("source/attention.h").read_text()
    assert f"constexpr int FEWEST_ROWS = {FEW_ROWS};" in source
    assert FEWEST_ROWS == FEW_ROWS


def test_what_heads_there_is_room_for() -> None:
    assert can_attend(F32, LARGEST_HEAD, LARGEST_HEAD)
    assert not can_attend(F32, LARGEST_HEAD + 2, 64)
    assert not can_attend(F32, 64, LARGEST_HEAD + 1)
    assert not can_attend(torch.float16, 64, 64)
    assert not can_attend(BF16, 63, 64)


@pytest.mark.parametrize("context", [1, 128, 4096, 4097, 32768, 40000, 1 << 20])
def test_splits_cover_a_context_and_fit_the_kernels_room(context: int) -> None:
    split, splits = splits_of(context)
    assert split <= LONGEST_SPLIT
    assert (splits - 1) * split < context <= splits * split
