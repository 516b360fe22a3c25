"""What a tiny architecture consists of, and the decoder shape that all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tools.tiny.vocabulary import Vocabulary

HIDDEN = 64
LAYERS = 3
CONTEXT = 1024

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
"""Fields of a sparse MLP."""


@dataclass(frozen=True)
class Family:
    """A tiny architecture.

    Attributes:
        architecture: class name in transformers.
        config: configuration class name in transformers.
        values: the configuration's fields.
        processor: content of ``preprocessor_config.json``, None for text decoders.
        seed: of the random weights; chosen so that greedy ids do not settle at once.
    """

    architecture: str
    config: str
    vocabulary: Vocabulary
    values: dict[str, Any]
    processor: dict[str, Any] | None = None
    seed: int = 0
    processor_extras: dict[str, Any] = field(default_factory=dict)


def text_config(vocabulary: Vocabulary, **more: Any) -> dict[str, Any]:
    """The shared decoder shape, with ``more`` on top."""
    return {
        "vocab_size": vocabulary.size,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": vocabulary.id_of(vocabulary.eos),
        "pad_token_id": vocabulary.id_of(vocabulary.pad) if vocabulary.pad else None,
        "bos_token_id": vocabulary.id_of(vocabulary.bos) if vocabulary.bos else None,
    } | more
