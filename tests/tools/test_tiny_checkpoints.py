"""The builder of tiny checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tools.tiny_checkpoints import (
    FAMILIES,
    PREFIX_LM_FAMILIES,
    VISION_FAMILIES,
    build_checkpoint,
    main,
)

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_is_complete_small_and_quick(family: str, tmp_path: Path) -> None:
    build_checkpoint("llama", tmp_path / "warm")  # imports are not the builder's time
    start = time.perf_counter()
    folder = build_checkpoint(family, tmp_path / family)
    assert time.perf_counter() - start < 2
    names = {p.name for p in folder.iterdir()}
    assert names >= FILES | {"chat_template.jinja"}
    assert ("preprocessor_config.json" in names) == (
        family in (*VISION_FAMILIES, *PREFIX_LM_FAMILIES)
    )
    assert (folder / "model.safetensors").stat().st_size < 2_000_000


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two, other = (
        build_checkpoint("llama", tmp_path / name, seed=seed) / "model.safetensors"
        for name, seed in (("one", 5), ("two", 5), ("other", 6))
    )
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()


def test_the_command_writes_the_named_families(tmp_path: Path) -> None:
    assert main([str(tmp_path), "llama", "qwen3_vl"]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"llama", "qwen3_vl"}


def test_the_command_names_the_known_families(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "nobody"]) == 2
    assert "unknown family 'nobody'; known: llama, " in capsys.readouterr().err
