"""An engine on a GPU, as far as a CPU shows it: the plan, the pool's size, answers, refusals.

The device is :class:`tests.graphs.fake_cuda.FakeApi`: pieces really replay, memory is counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from firstlight import LLM, SamplingParams
from firstlight.attention.serves import GATHERED, TORCH_VARLEN
from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.build import Parts, build, load
from firstlight.engine.gpu import Gpu, kv_room
from firstlight.engine.inspection import describe
from firstlight.errors import CaptureError, ConfigError
from firstlight.graphs import BucketState
from firstlight.graphs.backends.cuda import MemoryCounters, SegmentedGraph, last_run
from tests.conftest import TinyCheckpoint
from tests.graphs.fake_cuda import MIB, FakeApi

SETTINGS: Mapping[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 3,
    "page_size": 4,
    "prefill_buckets": (16, 64),
    "decode_buckets": (1, 3),
    "padding_cost": "free",
    "native": "off",
    "debug": True,
}
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
PROMPTS = ["one two three", "a much longer prompt that has more words than the other one has", "x"]


def on_gpu(folder: object, api: FakeApi, dtype: str = "float32", **settings: Any) -> Parts:
    """An engine whose device is ``api``."""
    cpu = EngineConfig.from_options({"model": folder, **SETTINGS, "dtype": dtype})
    config = replace(cpu, device="cuda", **settings)
    return build(config, load(cpu), clock=time.perf_counter, gpu=Gpu(api, config))


def answers(llm: LLM) -> list[tuple[int, ...]]:
    """Token ids of all prompts, side by side and then again."""
    found = llm.generate(PROMPTS, GREEDY) + llm.generate(PROMPTS[:1], GREEDY)
    return [tuple(completion.token_ids) for completion in found]


def as_llm(parts: Parts, llm: LLM) -> LLM:
    """``llm`` over other parts."""
    llm.parts = parts
    return llm


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma3_vl", marks=pytest.mark.slow)])
def test_answers_from_pieces_over_a_replaced_pool_are_those_of_the_tape(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    folder = tiny_checkpoint(family)
    with LLM(folder, **SETTINGS) as llm:
        expected = answers(llm)
    parts = on_gpu(folder, FakeApi())
    graph = parts.runners[Phase.PREFILL].graphs[64]
    assert isinstance(graph, SegmentedGraph)
    assert sum(piece.kind == "eager" for piece in graph.pieces) == len(parts.pool.keys)
    with LLM(folder, eager=True, dtype="float32") as llm:
        assert answers(as_llm(parts, llm)) == expected
    assert all(proof.passed for proof in proofs(parts))


def proofs(parts: Parts) -> list[Any]:
    """The proofs of all graphs."""
    found = [r.proof for capture in parts.captures.values() for r in capture.buckets]
    assert len(found) == 4
    return found


def test_the_pool_that_graphs_were_captured_over_is_freed(tiny_checkpoint: TinyCheckpoint) -> None:
    parts = on_gpu(tiny_checkpoint("llama"), FakeApi())
    new = {tensor.data_ptr() for tensor in (*parts.pool.keys, *parts.pool.values)}
    for runner in parts.runners.values():
        for graph in runner.graphs.values():
            assert isinstance(graph, SegmentedGraph)
            pools = [o for o in graph.plan.owners if o.startswith("KV pool")]
            assert pools
            assert not set(pools) & graph.captured_owners()
            used = {
                a.data_ptr()
                for part in graph.eager_calls
                for a in part.args
                if isinstance(a, torch.Tensor)
            }
            assert len(used & new) == len(new)


def test_the_pool_takes_what_graphs_have_left(tiny_checkpoint: TinyCheckpoint) -> None:
    # Another process has so much that a quarter of the pool is left.
    folder = tiny_checkpoint("llama")
    total = 512 * MIB
    api = FakeApi(total=total)
    wide = on_gpu(folder, api)
    pool = wide.pool.nbytes
    # What this device counts: the scratch memory of graphs is not among it.
    now = api.counters()
    graphs = total - (now.free + now.reserved - now.allocated)
    outside = int(total * 0.9) - graphs - pool // 4
    narrow = on_gpu(folder, FakeApi(total=total, outside=outside))
    assert pool // 5 < narrow.pool.nbytes <= pool // 4
    assert narrow.memory.limit.startswith("gpu_memory = 0.9 (it leaves ")
    assert narrow.pool.n_pages == (narrow.memory.n_pages,)
    assert narrow.kv.n_free == narrow.memory.n_pages - 1


def test_the_forecast_stands_beside_what_was_found(tiny_checkpoint: TinyCheckpoint) -> None:
    parts = on_gpu(tiny_checkpoint("llama"), FakeApi(transient=5 * MIB))
    assert parts.gpu is not None
    memory = parts.gpu.memory
    assert memory.graphs == sum(g.bytes for r in parts.runners.values() for g in r.graphs.values())
    assert memory.kv == parts.pool.nbytes
    assert memory.headroom == 5 * MIB
    assert memory.graphs_forecast > 0
    for number in (memory.graphs, memory.graphs_forecast, memory.kv, memory.kv_forecast):
        assert str(number) in memory.sentence()


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 0.98])
def test_a_device_that_is_full_is_refused_with_need_have_and_setting(
    share: float, tiny_checkpoint: TinyCheckpoint
) -> None:
    api = FakeApi(total=256 * MIB, outside=255 * MIB)
    with pytest.raises(ConfigError) as caught:
        on_gpu(tiny_checkpoint("llama"), api, gpu_memory=share)
    message = str(caught.value)
    assert message.startswith(f"gpu_memory = {share} (it leaves 0 of {256 * MIB} bytes) is too")
    assert "two pages (one is the sink) of 4 tokens take" in message


def test_a_report_says_the_backend_the_memory_and_where_it_was_last_run(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    parts = on_gpu(tiny_checkpoint("llama"), FakeApi())
    report = describe(parts)
    assert report["backend"] == "cuda"
    assert report["gpu"]["verified"] == last_run()
    assert report["gpu"]["kv"] == parts.pool.nbytes
    assert {row["kind"] for row in report["bytes"]} >= {"graph", "scratch", "kv"}


@pytest.fixture
def torchs_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which torch's own kernel is the only library's."""
    monkeypatch.setattr("firstlight.engine.gpu.available", lambda: (TORCH_VARLEN,))


@pytest.mark.usefixtures("torchs_own_kernel")
@pytest.mark.parametrize(
    ("dtype", "compute", "size"),
    [("bfloat16", (8, 0), 256), ("bfloat16", (7, 5), 16), ("float32", (8, 0), 16)],
)
def test_pages_are_what_the_attention_kernel_wants(
    dtype: str, compute: tuple[int, int], size: int, tiny_checkpoint: TinyCheckpoint
) -> None:
    api = FakeApi(compute=compute)
    parts = on_gpu(tiny_checkpoint("llama"), api, dtype, page_size=None, kv_pages=8, eager=True,
                   prefill_buckets=None, decode_buckets=None)  # fmt: skip
    assert parts.memory.page_size == parts.config.page_size == size
    assert parts.pool.page_size == size
    kernel = TORCH_VARLEN if size == 256 else GATHERED
    assert describe(parts)["attention"].startswith(f"{kernel}; not flash-attention-3: ")


@pytest.mark.usefixtures("torchs_own_kernel")
def test_a_page_size_that_is_set_is_kept_and_the_report_says_what_it_costs(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    api = FakeApi(compute=(8, 0))
    parts = on_gpu(tiny_checkpoint("llama"), api, "bfloat16", page_size=32, kv_pages=8, eager=True,
                   prefill_buckets=None, decode_buckets=None)  # fmt: skip
    assert parts.memory.page_size == 32
    said = describe(parts)["attention"]
    assert "not torch-varlen: page_size = 32; accepted: multiples of 256" in said


def test_a_pool_of_a_set_size_is_never_replaced(tiny_checkpoint: TinyCheckpoint) -> None:
    parts = on_gpu(tiny_checkpoint("llama"), FakeApi(), kv_pages=40)
    assert parts.pool.n_pages == (40,)


def test_a_capture_without_memory_leaves_smaller_buckets_and_the_engine_serves(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    def fail(number: int) -> None:
        if number == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    parts = on_gpu(tiny_checkpoint("llama"), FakeApi(fail=fail))
    table = parts.runners[Phase.PREFILL].buckets
    assert table.state(64) is BucketState.FAILED
    assert "no memory" in table.why(64)
    assert table.state(16) is BucketState.READY


def test_a_whole_capture_of_attention_that_reads_on_the_host_is_refused_with_its_name(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    # The CPU's kernel is such a one; on a GPU it depends on the kernel.
    with pytest.raises(CaptureError, match="when stream is capturing"):
        on_gpu(tiny_checkpoint("llama"), FakeApi(), backend="cuda-whole")


@pytest.mark.parametrize(
    ("now", "share", "headroom", "room"),
    [
        (MemoryCounters(free=60, total=100, reserved=30, allocated=30, peak=30), 0.9, 0, 50),
        (MemoryCounters(free=60, total=100, reserved=30, allocated=20, peak=30), 0.9, 5, 45),
        (MemoryCounters(free=8, total=100, reserved=2, allocated=2, peak=2), 0.9, 0, 0),
    ],
)
def test_room_is_what_the_driver_has_free_less_what_is_kept(
    now: MemoryCounters, share: float, headroom: int, room: int
) -> None:
    assert kv_room(now, share, headroom) == room
