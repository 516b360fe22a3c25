"""Engines with and without the compiled kernels: the same answers, and a reason where not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight.config import EngineConfig
from firstlight.core.reason import Mode
from firstlight.engine import native_tier
from firstlight.engine.native_tier import open_tier
from firstlight.errors import ConfigError, ModelLoadError
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.rounding import round_layer
from firstlight.native import Kernels, NativeUnavailableError, WeightFormat
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, reference, tiny_llm, user
from tests.pictures import picture

FAMILIES = ("llama", "gemma3", "qwen3_vl")
QUESTION = "What is in the picture?"


@contextmanager
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine that has none, in a process that has opened no kernels."""

    def unavailable(cache_dir: Path | None) -> Kernels:
        raise NativeUnavailableError("no C++ compiler: none of c++, g++, clang++ is on the path")

    with monkeypatch.context() as patched:
        patched.setattr(native_tier, "open_kernels", unavailable)
        yield


def kernels_are_here() -> bool:
    return open_tier(EngineConfig(), torch.float32).kernels is not None


def parts_of(family: str) -> list[Any]:
    return [QUESTION, picture()] if family.endswith("vl") else [QUESTION]


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_transformers_in_both_modes(
    tiny_checkpoint: TinyCheckpoint, family: str, native: str
) -> None:
    path, parts = tiny_checkpoint(family), parts_of(family)
    llm = tiny_llm(path, native=native)
    answer = llm.chat(user(*parts), GREEDY)
    assert list(answer.token_ids) == list(reference(llm, path, parts).greedy_ids)
    assert {step.decision.mode for step in answer.timings.steps} == {Mode.GRAPH}
    report = llm.inspect()
    assert report["kernels"]["native"] == (native == "auto" and kernels_are_here())
    assert ("attend_rows" in report["attention"]) == report["kernels"]["native"]


def test_without_a_compiler_the_engine_serves_and_says_why(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_checkpoint("llama")
    with without_compiler(monkeypatch):
        llm = tiny_llm(path)
    answer = llm.chat(user(QUESTION), GREEDY)
    assert list(answer.token_ids) == list(reference(llm, path, [QUESTION]).greedy_ids)
    kernels = llm.inspect()["kernels"]
    assert not kernels["native"]
    assert kernels["reason"].startswith("no C++ compiler")
    assert kernels["library"] is None
    assert llm.parts.native.sentence() == f"torch's ({kernels['reason']})"


@pytest.mark.parametrize(
    ("settings", "dtype", "reason"),
    [
        ({"native": "off"}, torch.float32, "native = off"),
        ({"fuse": False}, torch.float32, "fuse = false"),
        ({}, torch.float16, "the model is torch.float16"),
        ({"native": "off", "fuse": False}, torch.float64, "native = off"),
    ],
)
def test_each_reason_against_the_kernels_is_said(
    settings: dict[str, Any], dtype: torch.dtype, reason: str
) -> None:
    tier = open_tier(EngineConfig(**settings), dtype)
    assert tier.kernels is None
    assert reason in tier.reason
    assert tier.lowering() is None
    assert tier.describe()["reason"] == tier.reason


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_fewer_bits_without_the_kernels_are_refused(
    quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(quantization=quantization)
    with without_compiler(monkeypatch), pytest.raises(ConfigError) as caught:
        open_tier(config, torch.float32)
    text = str(caught.value)
    assert f"quantization = '{quantization}' needs the compiled kernels" in text
    assert "no C++ compiler" in text
    assert "accepted: quantization = 'none'" in text


def test_two_engines_with_folders_of_their_own_share_the_kernels(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    if not kernels_are_here():
        pytest.skip("no compiled kernels here")
    first = tiny_llm(tiny_checkpoint("llama"))
    second = tiny_llm(tiny_checkpoint("llama"), cache_dir=tmp_path)
    assert first.parts.native.kernels is second.parts.native.kernels
    want = first.chat(user(QUESTION), GREEDY).token_ids
    assert second.chat(user(QUESTION), GREEDY).token_ids == want


def test_a_weight_that_codes_cannot_hold_is_named() -> None:
    kernels = open_tier(EngineConfig(), torch.float32).kernels
    if kernels is None:
        pytest.skip("no compiled kernels here")
    linear = torch.nn.Linear(32, 4)
    linear.weight.data[1, 2] = float("nan")
    layer = torch.nn.Sequential(linear)
    with pytest.raises(ModelLoadError, match=r"0\.weight of a decoder layer: .*NaN.*INT4"):
        round_layer(layer, kernels, WeightFormat.INT4, FuseReport())


@pytest.mark.parametrize(("asked", "dots", "rounds"), [
    ("auto", True, True), ("auto", False, False), ("on", False, True), ("off", True, False),
])  # fmt: skip
def test_inputs_are_rounded_where_the_cpu_is_made_for_it(
    asked: str, dots: bool, rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels_are_here():
        pytest.skip("no compiled kernels here")
    monkeypatch.setattr(Kernels, "dots_bytes", property(lambda self: dots))
    config = EngineConfig(quantization="int4", dynamic_quantization=asked)
    assert open_tier(config, torch.float32).rounds_rows is rounds
    plain = EngineConfig(dynamic_quantization="off" if asked == "on" else asked)
    assert not open_tier(plain, torch.float32).rounds_rows


def test_rounded_inputs_for_weights_that_are_not_are_refused() -> None:
    config = EngineConfig(dynamic_quantization="on")
    with pytest.raises(
        ConfigError, match="quantization is 'none'; accepted: quantization = 'int8'"
    ):
        open_tier(config, torch.float32)
