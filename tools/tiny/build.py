"""Writes one tiny checkpoint: configuration, weights, tokenizer, image processor."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from tools.tiny.families import FAMILIES
from tools.tiny.family import Family
from tools.tiny.vocabulary import build_tokenizer

GAIN = 1.4
"""Above 1, so that attention and MLP move the residual stream and no token repeats forever."""


def build_checkpoint(name: str, folder: Path, *, seed: int | None = None) -> Path:
    """Write the family ``name`` into ``folder`` (created) and return it.

    The same name and seed give the same bytes. Weights are fp32.

    Raises:
        KeyError: no family has this name.
    """
    family = FAMILIES[name]()
    model = _model(family)
    randomise(model, family.seed if seed is None else seed)
    write_checkpoint(model, family, folder)
    return folder


def write_checkpoint(model: Any, family: Family, folder: Path) -> None:
    """Write a model that is there, with the family's tokenizer and processor, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = family.vocabulary.id_of(family.vocabulary.eos)
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    build_tokenizer(family.vocabulary).save_pretrained(folder)
    if family.processor is not None:
        _write_json(folder / "preprocessor_config.json", family.processor)
        _write_json(folder / "processor_config.json", family.processor_extras)


def _model(family: Family) -> Any:
    import transformers

    config = getattr(transformers, family.config)(**family.values)
    return getattr(transformers, family.architecture)(config).eval()


def randomise(model: Any, seed: int) -> None:
    """Fill every parameter of ``model`` from one generator, in name order, scaled by fan-in."""
    generator = torch.Generator().manual_seed(seed)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_scaled(name, noise, tied=tied))


def _scaled(name: str, noise: torch.Tensor, *, tied: bool) -> torch.Tensor:
    if noise.ndim == 1:
        gain = 1.0 if ("norm" in name or "ln_" in name) and name.endswith("weight") else 0.0
        return gain + 0.1 * noise
    if "embed_tokens" in name and not tied:
        return noise
    if "embed" in name and "tokens" not in name and noise.ndim == 2:
        return 0.3 * noise
    fan_in = math.prod(noise.shape[1:])
    return noise * (GAIN / math.sqrt(fan_in))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
