"""The sanitizer over graphs of CUDA pieces, as far as a CPU shows it: healthy parts are clean,
faulty ones are named with the piece."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight import LLM, SamplingParams
from firstlight.attention import RowsInMemory
from firstlight.attention.metadata import attention_values
from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine import placement
from firstlight.engine import step as engine_step
from firstlight.engine.build import build, load
from firstlight.engine.gpu import Gpu
from firstlight.engine.merge import merge
from firstlight.graphs.backends.cuda import SegmentedGraph
from firstlight.graphs.sanitizer import Finding, FindingKind
from firstlight.models.body import RowInputs
from firstlight.models.registry import AdapterRegistry
from firstlight.testing import SETTINGS, standard_batches, turn
from tests.conftest import TinyCheckpoint
from tests.graphs.fake_cuda import FakeApi, FakePiece
from tests.toy import ToyAdapter, ToyForCausalLM, build_toy, toy_registry

K = FindingKind
PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


def on_gpu(folder: Path, adapters: AdapterRegistry | None = None, **other: Any) -> LLM:
    """A sanitized engine whose device is the one that stands in."""
    settings = {**SETTINGS, "max_context": 256, "native": "off", **other}
    cpu = EngineConfig.from_options({"model": folder, **settings})
    config = replace(cpu, device="cuda", sanitize=True, proof="off")
    llm = LLM(folder, adapters=adapters, dtype="float32", eager=True)
    gpu = Gpu(FakeApi(), config)
    llm.parts = build(config, load(cpu, adapters), clock=time.perf_counter, gpu=gpu)
    return llm


@pytest.fixture(scope="module")
def engine(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return on_gpu(tiny_checkpoint("llama"))


@pytest.fixture
def llm(engine: LLM) -> LLM:
    """The engine of this module, without what earlier tests have found or left in caches."""
    assert engine.parts.findings is not None
    engine.parts.findings.clear()
    engine.flush_caches()
    return engine


def by_kind(llm: LLM) -> dict[FindingKind, Finding]:
    """One finding of each kind, of prefills."""
    return {f.kind: f for f in reversed(llm.findings) if f.phase is Phase.PREFILL}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "gemma3_vl"])
def test_a_healthy_family_gives_no_finding(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    llm = on_gpu(tiny_checkpoint(family))
    for batch in standard_batches(pictures=True):
        llm.chat(batch, PARAMS)
    assert llm.findings == ()


def test_a_healthy_model_gives_no_finding_and_both_kinds_of_graphs_were_looked_at(
    llm: LLM,
) -> None:
    llm.chat([turn("Hello there."), turn("And hello to you, too.")], PARAMS)
    assert llm.findings == ()
    for runner in llm.parts.runners.values():
        assert all(isinstance(graph, SegmentedGraph) for graph in runner.graphs.values())
        assert set(runner._replays) == set(runner.graphs)  # type: ignore[attr-defined]
        assert max(runner._recorded.values()) > 0  # type: ignore[attr-defined]


def test_what_cannot_be_looked_at_on_a_gpu_is_said(llm: LLM) -> None:
    said = llm.inspect()["sanitizer"]
    assert said["findings"] == 0
    assert any(line.startswith("intermediates inside of a piece") for line in said["not_looked_at"])


def test_no_tensor_of_a_look_is_made_on_a_device_that_was_not_named(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the CPU plays the GPU, and a tensor that names no device lies on neither."""

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with torch.device("meta"):
                return function(*args)

        return call

    for runner in llm.parts.runners.values():
        for name in ("fill", "_run_checked"):
            monkeypatch.setattr(runner, name, within(getattr(runner, name)))
    llm.chat([turn("Hello there."), turn("And hello to you, too.")], PARAMS)
    assert llm.findings == ()


def test_a_merge_that_forgets_a_row_is_found(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(into: Tensor, *rest: object) -> None:
        before = into[1:2].clone()
        merge(into, *rest)  # type: ignore[arg-type]
        into[1:2].copy_(before)

    monkeypatch.setattr(engine_step, "merge", wrong)
    llm.chat(turn("Hello there."), PARAMS)
    found = by_kind(llm)[K.ROW_UNWRITTEN]
    assert found.subject == "slot input_embeds"
    assert "rows 1 of" in found.detail


Values = Callable[[Sequence[RowsInMemory], dict[str, Tensor]], object]


def metadata(monkeypatch: pytest.MonkeyPatch, change: Values) -> None:
    """Attention metadata that ``change`` has made wrong."""

    def wrong(rows: Sequence[RowsInMemory], **sizes: Any) -> dict[str, Tensor]:
        values = attention_values(rows, **sizes)
        change(rows, values)
        return values

    monkeypatch.setattr(placement, "attention_values", wrong)


def test_a_page_of_nobody_that_is_written_is_named_with_attention(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = llm.parts.memory.n_pages * llm.parts.memory.page_size - 1
    metadata(monkeypatch, lambda _, values: values["write_locations"][0].fill_(last))
    llm.chat(turn("Hello there."), PARAMS)
    found = next(f for f in llm.findings if f.kind is K.FOREIGN_WRITE and f.op)
    assert found.subject.startswith("KV pool, keys of layer")
    assert "the last page" in found.detail
    assert found.op == "firstlight.attention.default"


def test_a_context_that_takes_in_a_foreign_page_is_found(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(_: Sequence[RowsInMemory], values: dict[str, Tensor]) -> None:
        values["page_table"][0, 0] += 20
        values["attention_rows"][0, 3] = -1

    metadata(monkeypatch, change)
    llm.chat(turn("Hello there."), PARAMS)
    found = by_kind(llm)
    assert "which the batch does not hold" in found[K.BAD_INDEX].detail
    assert found[K.UNUSED_MEMORY_READ].op == "firstlight.attention.default"


def test_a_pool_that_is_replaced_after_the_capture_is_found(llm: LLM) -> None:
    keys = llm.parts.pool.keys
    right = keys[1]
    try:
        keys[1] = right.clone()
        llm.chat(turn("Hello there."), PARAMS)
    finally:
        keys[1] = right
    found = by_kind(llm)[K.STALE_ADDRESS]
    assert (found.subject, found.op) == (
        "KV pool, keys of layer 1", "firstlight.attention.default",
    )  # fmt: skip


def test_a_bridge_that_its_piece_does_not_write_is_found_as_a_replay_that_differs(
    llm: LLM,
) -> None:
    graph = llm.parts.runners[Phase.PREFILL].graphs[64]
    assert isinstance(graph, SegmentedGraph)
    first = graph._parts[0]
    assert isinstance(first, FakePiece)
    saved = list(first.calls)
    try:
        del first.calls[-2]  # behind it come the zeroes of the result of attention
        llm.chat(turn("Hello there, and a few more words so that the larger graph runs."), PARAMS)
    finally:
        first.calls[:] = saved
    found = by_kind(llm)[K.REPLAY_DIFFERS]
    assert (found.subject, found.bucket) == ("graph", 64)


class Centring(ToyAdapter):
    """Its body subtracts the mean over all rows, padding included."""

    def body(self):  # type: ignore[no-untyped-def]
        plain = super().body()

        def body(inputs: RowInputs) -> Tensor:
            hidden: Tensor = plain(inputs)
            return hidden - inputs.embeds.mean()

        return body


def test_a_body_that_reads_padding_is_found_with_its_piece(tmp_path: Path) -> None:
    registry = toy_registry(ToyForCausalLM, Centring)
    llm = on_gpu(build_toy(tmp_path / "toy"), registry, prefill_buckets=(64,))
    llm.chat(turn("Hello there."), PARAMS)
    found = by_kind(llm)[K.PADDING_READ]
    assert found.subject == "slot input_embeds"
    assert found.op.startswith("prefill 64 piece ")
