"""The transformers model of a folder, with all of its weights and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from firstlight.errors import FirstlightError, ModelLoadError
from firstlight.models.empty import WithoutDraws
from firstlight.models.files import CONFIG, GENERATION_CONFIG, read_json
from firstlight.models.quiet import no_progress_bars
from firstlight.models.registry import Entry

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
"""Fields that are sizes in every family; lists, one size per layer, are the library's matter."""

_LAYER_KEY = re.compile(r"(^|\.)layers\.\d+\.")
_RECOMPUTED = ".rotary_emb.inv_freq"
"""Kept by older checkpoints for each layer, and computed from the configuration since."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line; the kind where the text alone tells little."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    if isinstance(error, OSError | ValueError | RuntimeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def read_architecture(folder: Path) -> str:
    """The architecture that ``config.json`` names, after a look at what else it says.

    Raises:
        ModelLoadError: there is no such name, the weights are quantised, a size is no positive
            number, or one of the JSON files is damaged.
    """
    path = folder / CONFIG
    config = read_json(path)
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise ModelLoadError(f"{path} names no architecture")
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        _check_part(path, part)
    if (folder / GENERATION_CONFIG).is_file():
        read_json(folder / GENERATION_CONFIG)
    return str(names[0])


def _check_part(path: Path, part: Mapping[str, Any]) -> None:
    quantised = part.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        raise ModelLoadError(
            f"{path} has a quantization_config ({method or 'of no named method'}); quantised "
            "weights are not served yet, give a checkpoint in 16 or 32 bits"
        )
    for field in _SIZES:
        value = part.get(field)
        if value is None or isinstance(value, list | dict):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ModelLoadError(f"{path} gives {field} = {value!r}; it must be a positive int")


def load_weights(
    folder: Path, architecture: str, entry: Entry, dtype: torch.dtype, remote: bool
) -> Any:
    """The model with the checkpoint's weights.

    Raises:
        ModelLoadError: the class is unknown or cannot be built from the configuration, or weights
            are missing, left over or of another shape.
    """
    import transformers

    cls = entry.model_class or getattr(transformers, architecture, None)
    if cls is None:
        raise ModelLoadError(
            f"this transformers ({transformers.__version__}) has no class {architecture!r}"
        )
    try:
        config = (
            {}
            if entry.config_class is None
            else {"config": entry.config_class.from_pretrained(folder)}
        )
        with no_progress_bars():
            model, report = _read(
                cls,
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=remote,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, where the shapes are known
                **config,
            )
    except FirstlightError:
        raise
    # A wrong field of a configuration may surface as anything, wherever it is first computed with.
    except Exception as error:
        raise ModelLoadError(f"{folder} cannot be loaded: {first_line(error)}") from error
    _check_report(folder, architecture, report)
    return model


def _read(cls: Any, folder: Path, **options: Any) -> Any:
    """What ``from_pretrained`` returns, without draws that nobody needs where that goes well."""
    try:
        with WithoutDraws():
            return cls.from_pretrained(folder, **options)
    # Modules may do anything while they are made; what is wrong with the files shows again below.
    except Exception:
        return cls.from_pretrained(folder, **options)


def _check_report(folder: Path, architecture: str, report: Mapping[str, Iterable[Any]]) -> None:
    """Refuse weights that are missing, of another shape, or of layers that the model lacks."""
    mismatched = sorted(report["mismatched_keys"])
    if mismatched:
        name, found, expected = mismatched[0]
        raise ModelLoadError(
            f"{folder} has {len(mismatched)} weights of another shape than {CONFIG} says, first "
            f"{name}: {tuple(found)} instead of {tuple(expected)}"
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelLoadError(
            f"{folder} lacks {len(missing)} weights of {architecture}, first {missing[0]}"
        )
    surplus = sorted(
        name
        for name in report["unexpected_keys"]
        if _LAYER_KEY.search(name) and "vision" not in name and not name.endswith(_RECOMPUTED)
    )
    if surplus:
        raise ModelLoadError(
            f"{folder} has {len(surplus)} weights of decoder layers for which {CONFIG} leaves no "
            f"place in {architecture}, first {surplus[0]}"
        )
