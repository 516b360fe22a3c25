"""Which models keep a state from token to token, told from their configuration alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from firstlight.models.files import CONFIG, read_json

SERVED_LAYERS = ("full_attention", "sliding_attention")
"""Layer types of transformers' configurations whose whole past lies in KV pages."""

RECURRENT_LAYERS = frozenset(
    {"linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent"}
)
"""Types with a recurrent or convolution state; ``hybrid`` layers have one beside attention."""

_LISTS = ("layer_types", "layers_block_type", "block_types")
_RECURRENT_MODELS = frozenset({"rwkv", "xlstm"})  # their configurations have no list of layers
_PATTERN = "hybrid_override_pattern"  # Nemotron-H: one letter a layer, M for Mamba
_TOWERS = ("vision", "audio")


def why_recurrent(who: str, layer_types: Iterable[str]) -> str | None:
    """Why a decoder of these layers cannot be served, in one sentence; None if none is recurrent.

    Args:
        who: the architecture, for the sentence.
    """
    counts = Counter(layer_types)
    found = sorted(kind for kind in counts if kind in RECURRENT_LAYERS)
    if not found:
        return None
    n = sum(counts[kind] for kind in found)
    kinds = " and ".join(repr(kind) for kind in found)
    return _sentence(f"{who} has recurrent layers ({n} of {counts.total()}, of type {kinds})")


def why_folder_recurrent(folder: Path, who: str) -> str | None:
    """The same for a checkpoint of an architecture that nothing else is known of.

    Its ``config.json`` is read as transformers reads it, where it knows the model, since many
    configurations spell their layers by a period or a pattern; else as it stands.
    """
    raw = read_json(folder / CONFIG)
    config = _configuration(folder)
    types = getattr(config, "layer_types", None) if config is not None else None
    reason = why_recurrent(who, types or ()) or why_recurrent(who, _listed(raw))
    if reason is None and raw.get("model_type") in _RECURRENT_MODELS:
        return _sentence(f"{who} is a recurrent model ({raw['model_type']})")
    return reason


def _sentence(what: str) -> str:
    return (
        f"{what}: a state goes from token to token, which needs state pools, and these are not "
        f"built yet; served are decoders of {' and '.join(SERVED_LAYERS)} layers"
    )


def _configuration(folder: Path) -> Any | None:
    """The decoder's part of transformers' configuration; None where transformers cannot read it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return config.get_text_config(decoder=True)
    # An unknown model or a damaged field: whatever its class raises, there is nothing to learn.
    except Exception:
        return None


def _listed(config: Mapping[str, Any]) -> Iterator[str]:
    """Layer types of the first list of a configuration, towers left out."""
    for name in _LISTS:
        if isinstance(config.get(name), Sequence) and not isinstance(config[name], str):
            yield from map(str, config[name])
            return
    if isinstance(config.get(_PATTERN), str):
        letters = {"M": "mamba", "*": "attention"}
        yield from (letters.get(letter, "mlp") for letter in config[_PATTERN])
        return
    for name, part in config.items():
        if isinstance(part, dict) and not any(tower in name for tower in _TOWERS):
            yield from _listed(part)
