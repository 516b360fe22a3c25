"""The sanitizer over whole engines: healthy families are clean, faulty parts are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, TEXT_FAMILIES, VISION_FAMILIES
from torch import Tensor

from firstlight import LLM, SamplingParams
from firstlight.attention import RowsInMemory
from firstlight.attention.metadata import attention_values
from firstlight.core.reason import Decision, Mode, Phase, Reason
from firstlight.engine import placement
from firstlight.engine import step as engine_step
from firstlight.engine.merge import merge
from firstlight.engine.step import Step
from firstlight.errors import ConfigError
from firstlight.graphs import Arena, Extent, GraphRunner, SlotRegistry, TapeGraph
from firstlight.graphs.sanitizer import FindingKind
from firstlight.models.body import RowInputs
from firstlight.testing import SETTINGS, SanitizedEngines, standard_batches, turn
from tests.conftest import TinyCheckpoint
from tests.toy import ToyAdapter, ToyForCausalLM, build_toy, toy_registry

K = FindingKind
FEW: dict[str, Any] = {"prefill_buckets": (64,), "proof": "off", "max_context": 256}
PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.mark.parametrize("family", [*TEXT_FAMILIES, *VISION_FAMILIES, *PREFIX_LM_FAMILIES])
def test_a_healthy_family_gives_no_finding(
    family: str, tiny_checkpoint: TinyCheckpoint, sanitized: SanitizedEngines
) -> None:
    llm = sanitized(tiny_checkpoint(family), max_tokens=2, **FEW)
    counts = llm.parts.runners[Phase.PREFILL].counter.counts()
    assert counts[Phase.PREFILL, Reason.CAPTURED] > 0
    assert counts[Phase.DECODE, Reason.CAPTURED] > 0


# Off means absent


def plain_and_sanitized(path: Path) -> tuple[LLM, LLM]:
    """The same checkpoint without and with the sanitizer."""
    off, on = (LLM(path, **{**SETTINGS, **FEW, "sanitize": s}) for s in (False, True))
    return off, on


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: TinyCheckpoint) -> tuple[LLM, LLM]:
    return plain_and_sanitized(tiny_checkpoint("qwen3_vl"))


def test_switched_off_no_part_of_it_is_built(pair: tuple[LLM, LLM]) -> None:
    off, _ = pair
    assert off.parts.findings is None
    assert off.findings == ()
    assert type(off.parts.engine._step) is Step
    for runner in off.parts.runners.values():
        assert type(runner) is GraphRunner
        assert type(runner.registry) is SlotRegistry
        assert type(runner.registry._arena) is Arena


def test_switched_off_or_on_a_replay_runs_the_same_operations(pair: tuple[LLM, LLM]) -> None:
    for phase in Phase:
        off, on = (llm.parts.runners[phase].graphs for llm in pair)
        assert off.keys() == on.keys()
        for bucket in off:
            plain, checked = off[bucket], on[bucket]
            assert isinstance(plain, TapeGraph)
            assert isinstance(checked, TapeGraph)
            assert [s.op.name for s in plain.steps] == [s.op.name for s in checked.steps]


def test_the_answers_are_the_same_with_and_without(pair: tuple[LLM, LLM]) -> None:
    for batch in standard_batches(pictures=True):
        off, on = (llm.chat(batch, PARAMS) for llm in pair)
        assert [c.token_ids for c in off] == [c.token_ids for c in on]
    assert pair[1].findings == ()


def test_memory_is_left_as_a_plain_engine_leaves_it(pair: tuple[LLM, LLM]) -> None:
    for llm in pair:
        for pool in (*llm.parts.pool.keys, *llm.parts.pool.values):
            pool.zero_()
        llm.chat(turn("How many circles are there?"), PARAMS)
    pools = [(*llm.parts.pool.keys, *llm.parts.pool.values) for llm in pair]
    for off, on in zip(*pools, strict=True):
        assert torch.equal(off[1:], on[1:])


# Faulty parts


class Centring(ToyAdapter):
    """Its body subtracts the mean over all rows, padding included."""

    def body(self):  # type: ignore[no-untyped-def]
        plain = super().body()

        def body(inputs: RowInputs) -> Tensor:
            hidden: Tensor = plain(inputs)
            return hidden - inputs.embeds.mean()

        return body


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return build_toy(tmp_path / "toy")


@pytest.mark.parametrize("proof", ["off", "quick"])
def test_an_adapter_that_reads_padding_fails_the_authors_test_with_its_own_line(
    toy: Path, proof: str
) -> None:
    engines = SanitizedEngines()
    registry = toy_registry(ToyForCausalLM, Centring)
    with pytest.raises(pytest.fail.Exception) as failure:
        engines(toy, adapters=registry, **{**FEW, "proof": proof})
    text = str(failure.value)
    assert "padding_read: slot input_embeds, prefill 64: padding rows" in text
    assert "aten.mean.default" in text
    assert f"at {__file__}:" in text


def ask(path: Path, *texts: str) -> LLM:
    """A sanitized engine that has answered ``texts`` together."""
    llm = LLM(path, **{**SETTINGS, **FEW, "sanitize": True})
    llm.chat([turn(text) for text in texts], PARAMS)
    return llm


def test_a_merge_that_forgets_a_row_is_found(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(into: Tensor, *rest: object) -> None:
        before = into[1:2].clone()
        merge(into, *rest)  # type: ignore[arg-type]
        into[1:2].copy_(before)

    monkeypatch.setattr(engine_step, "merge", wrong)
    llm = ask(tiny_checkpoint("llama"), "Hello there.")
    found = [f for f in llm.findings if f.kind is K.ROW_UNWRITTEN]
    assert [(f.subject, f.phase, f.bucket) for f in found] == [
        ("slot input_embeds", Phase.PREFILL, 64)
    ]
    assert "rows 1 of" in found[0].detail


def test_metadata_that_name_another_requests_page_are_found(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(rows: Sequence[RowsInMemory], **sizes: Any) -> dict[str, Tensor]:
        values = attention_values(rows, **sizes)
        if len(rows) > 1:
            values["write_locations"][-1] = int(rows[0].pages[0]) * sizes["page_size"]
        return values

    monkeypatch.setattr(placement, "attention_values", wrong)
    llm = ask(tiny_checkpoint("llama"), "Hello there.", "And hello to you.")
    kinds = {f.kind for f in llm.findings}
    assert {K.BAD_INDEX, K.MEMORY_UNWRITTEN} <= kinds
    assert {f.subject for f in llm.findings if f.kind is K.BAD_INDEX} == {"slot write_locations"}


def test_a_page_of_nobody_that_is_written_is_named_with_the_attention_operation(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(rows: Sequence[RowsInMemory], **sizes: Any) -> dict[str, Tensor]:
        values = attention_values(rows, **sizes)
        last = llm.parts.memory.n_pages * sizes["page_size"] - 1
        values["write_locations"][0] = last
        return values

    llm = LLM(tiny_checkpoint("llama"), **{**SETTINGS, **FEW, "sanitize": True})
    monkeypatch.setattr(placement, "attention_values", wrong)
    llm.chat(turn("Hello there."), PARAMS)
    found = next(f for f in llm.findings if f.kind is K.FOREIGN_WRITE and f.op)
    assert found.subject.startswith("KV pool, keys of layer")
    assert "the last page" in found.detail
    assert found.op == llm.inspect()["attention"]


def test_a_context_that_takes_in_a_foreign_page_is_found(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(rows: Sequence[RowsInMemory], **sizes: Any) -> dict[str, Tensor]:
        values = attention_values(rows, **sizes)
        values["page_table"][0, 0] += 20
        values["attention_rows"][0, 3] = -1
        return values

    monkeypatch.setattr(placement, "attention_values", wrong)
    llm = ask(tiny_checkpoint("llama"), "Hello there.")
    by_kind = {f.kind: f for f in llm.findings if f.phase is Phase.PREFILL}
    assert by_kind[K.BAD_INDEX].subject == "slot page_table"
    assert "which the batch does not hold" in by_kind[K.BAD_INDEX].detail
    assert by_kind[K.UNUSED_MEMORY_READ].op == llm.inspect()["attention"]
    assert K.NAN_OUTPUT not in by_kind


@pytest.mark.parametrize("reason", [Reason.PADDING_COST, Reason.QUARANTINED])
def test_a_graph_that_does_not_serve_is_examined_all_the_same(toy: Path, reason: Reason) -> None:
    registry = toy_registry(ToyForCausalLM, Centring)
    llm = LLM(toy, adapters=registry, **{**SETTINGS, **FEW, "sanitize": True})
    runner = llm.parts.runners[Phase.PREFILL]
    right = runner.decide

    def decide(live: Extent, max_context: int) -> Decision:
        return replace(right(live, max_context), bucket=None, reason=reason)

    runner.decide = decide  # type: ignore[method-assign]
    answer = llm.chat(turn("Hello there."), PARAMS)
    assert answer.timings.steps[0].decision.mode is Mode.EAGER
    assert [f.bucket for f in llm.findings if f.kind is K.PADDING_READ] == [64]


def test_sample_prompts_reach_every_bucket(tiny_checkpoint: TinyCheckpoint) -> None:
    few = {**SETTINGS, **FEW, "prefill_buckets": (32, 48, 64), "decode_buckets": (1, 2, 3)}
    llm = LLM(tiny_checkpoint("qwen2"), **few, sanitize=True)
    seen: set[tuple[Phase, int | None]] = set()
    for phase, runner in llm.parts.runners.items():
        right = runner.run

        def run(decision: Decision, right: Any = right, phase: Phase = phase) -> Tensor:
            seen.add((phase, decision.bucket))
            hidden: Tensor = right(decision)
            return hidden

        runner.run = run  # type: ignore[method-assign]
    assert llm.sanitize(max_tokens=2) == ()
    assert {b for p, b in seen if p is Phase.PREFILL} >= {32, 48, 64}
    assert {b for p, b in seen if p is Phase.DECODE} == {1, 2, 3}


def test_an_engine_without_the_sanitizer_does_not_pretend_to_look(pair: tuple[LLM, LLM]) -> None:
    with pytest.raises(ConfigError, match="sanitize = False"):
        pair[0].sanitize()


def test_a_pool_that_is_replaced_after_the_capture_is_found(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    llm = LLM(tiny_checkpoint("llama"), **{**SETTINGS, **FEW, "sanitize": True})
    llm.parts.pool.keys[1] = llm.parts.pool.keys[1].clone()
    llm.chat(turn("Hello there."), PARAMS)
    found = [f for f in llm.findings if f.kind is K.STALE_ADDRESS]
    assert {f.subject for f in found} == {"KV pool, keys of layer 1"}
    assert {f.op for f in found} == {llm.inspect()["attention"]}
