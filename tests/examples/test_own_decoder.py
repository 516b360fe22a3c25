"""The example of a decoder that is captured with `firstlight.graphs` alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from examples import own_decoder as example
from firstlight.core.reason import Mode, Reason
from firstlight.graphs import BodyInputs
from firstlight.graphs.proof import Placed
from firstlight.graphs.sanitizer import FindingKind, Report, SanitizingRunner

PATH = Path(example.__file__)


def test_it_prints_that_all_is_proven_equal_and_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["bucket  32", "bucket  16", "bucket   8"]
    assert all(line.endswith("cases passed") for line in lines[:3])
    assert lines[3].startswith("slot input_embeds float32  [32, 48]")
    assert [line.split()[1] for line in lines[4:8]] == ["positions", "kind", "write_to", "context"]
    assert lines[8:] == [
        "12 rows in the graph of 16; replay equals eager: True",
        "8 rows in the graph of 8; replay equals eager: True",
        "sanitizer: 0 findings",
    ]


def test_it_knows_nothing_of_models_media_or_the_engine() -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(PATH.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("firstlight")
    }
    allowed = ("firstlight", "firstlight.contract", "firstlight.core", "firstlight.graphs")
    assert imported
    assert all(m in allowed or (m or "").startswith(tuple(f"{a}." for a in allowed[2:]))
               for m in imported)  # fmt: skip


def test_the_wide_columns_and_the_plane_reach_the_graph() -> None:
    memory = example.Memory()
    runner = example.build(memory)
    runner.capture_all()
    batch = Placed(tuple(memory.lend(5)), 0, 5)
    decision, hidden = example.serve(runner, memory, batch)
    assert decision.mode is Mode.GRAPH
    for change in ("input_embeds", "kind"):
        slot = runner.registry.buffer(change)
        kept = slot.clone()
        part = slot[:5, example.HIDDEN :] if change == "input_embeds" else slot[:5]
        part.copy_(1 - part)
        assert not torch.equal(runner.run(decision), hidden)
        slot.copy_(kept)
    assert torch.equal(runner.run(decision), hidden)


def test_the_proof_refuses_a_decoder_that_reads_padding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = example.Decoder.forward

    def mixes_rows(self: Any, inputs: BodyInputs) -> Tensor:
        hidden: Tensor = plain(self, inputs)
        return hidden - hidden.mean(dim=0)

    monkeypatch.setattr(example.Decoder, "forward", mixes_rows)
    memory = example.Memory()
    runner = example.build(memory)
    report = runner.capture_all()
    assert report.proof is not None
    assert len(report.proof.failed) == len(report.buckets)
    decision, _ = example.serve(runner, memory, Placed(tuple(memory.lend(5)), 0, 5))
    assert decision.reason is Reason.QUARANTINED


def test_the_proof_refuses_a_memory_that_mixes_up_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = example.Memory.values

    def of_the_first(self: Any, requests: Sequence[Placed]) -> Mapping[str, Tensor]:
        values = dict(plain(self, requests))
        values["context"] = values["context"][:1].expand_as(values["context"]).contiguous()
        return values

    monkeypatch.setattr(example.Memory, "values", of_the_first)
    report = example.build(example.Memory()).capture_all()
    assert report.proof is not None
    assert report.proof.failed


def test_the_sanitizer_finds_what_only_a_weight_of_zero_hides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the second mask, foreign memory is multiplied by zero: wrong once it is NaN."""
    source = PATH.read_text()
    masked = "values.masked_fill(later[..., None], 0)"
    assert masked in source
    module = ModuleType("own_decoder")
    monkeypatch.setitem(sys.modules, "own_decoder", module)
    exec(compile(source.replace(masked, "values"), str(PATH), "exec"), module.__dict__)
    report, memory = Report(), module.Memory()
    pools = {f"memory of {name}": layer[:, None] for name, layer in memory.state().items()}
    paged = module.PagedMemory(pools, page_size=1)
    runner = module.build(memory, SanitizingRunner, report=report, memory=paged)
    runner.capture_all()
    module.serve(runner, memory, Placed(tuple(memory.lend(5)), 0, 5))
    kinds = {finding.kind for finding in report}
    assert kinds & {FindingKind.UNUSED_MEMORY_READ, FindingKind.PADDING_READ}
    assert any("own_decoder.py" in finding.where for finding in report)
