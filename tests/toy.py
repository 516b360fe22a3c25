"""Models of one's own, transformers-style: wide rows that their decoder folds.

What a third party would write to bring an architecture whose rows are wider than its hidden size:
a configuration, a model that declares ``input_embeds_hidden_size``, and an adapter of a few lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tools.tiny import vocabulary
from tools.tiny.build import randomise
from tools.tiny.vocabulary import build_tokenizer
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter
from firstlight.models.quiet import no_progress_bars
from firstlight.models.registry import AdapterRegistry

HIDDEN = 32
PATCH = 8
SIDE = 32
IMAGE_TOKEN = "<|image_pad|>"


class ToyConfig(LlamaConfig):  # type: ignore[misc]
    """A llama shape, with the width of a row and the width that the class declares for it."""

    model_type = "toy"
    row_width: int = 2 * HIDDEN
    declared_width: int | None = 2 * HIDDEN
    image_token_id: int = 0


class ToyDecoder(PreTrainedModel):  # type: ignore[misc]
    """Folds each wide row to ``hidden_size`` columns, then runs llama layers."""

    config_class = ToyConfig

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.fold = nn.Linear(config.row_width, config.hidden_size, bias=False)
        self.layers = nn.ModuleList(
            LlamaDecoderLayer(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = LlamaRMSNorm(config.hidden_size)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.post_init()

    def forward(
        self, inputs_embeds: Tensor, position_ids: Tensor, use_cache: bool = False, **kwargs: Any
    ) -> BaseModelOutput:
        """``[1, T, row_width]`` to ``[1, T, hidden_size]``."""
        hidden = self.fold(inputs_embeds)
        rotary = self.rotary_emb(hidden, position_ids)
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(hidden))


class ToyForCausalLM(PreTrainedModel):  # type: ignore[misc]
    """Embeds text and patches straight into wide rows, and says how wide they are."""

    config_class = ToyConfig

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.row_width)
        self.patches = nn.Conv2d(3, config.row_width, PATCH, stride=PATCH)
        self.model = ToyDecoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @property
    def input_embeds_hidden_size(self) -> int | None:
        """The declaration, as firstlight reads it; the truth is ``config.row_width``."""
        width: int | None = self.config.declared_width
        return width

    def get_decoder(self) -> nn.Module:
        """The part that takes rows."""
        return self.model

    def get_image_features(self, pixel_values: Tensor) -> BaseModelOutputWithPooling:
        """``[n, 3, SIDE, SIDE]`` to n tensors of one wide row per patch."""
        rows = self.patches(pixel_values).flatten(2).transpose(1, 2)
        return BaseModelOutputWithPooling(pooler_output=rows)


class MisspeltToy(ToyForCausalLM):
    """Declares the width under a name that nothing reads."""

    inputs_embeds_hidden_size = 2 * HIDDEN


class ToyAdapter(MediaAdapter):
    """One row per patch."""

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Patches of the crop."""
        height, width = tensors["pixel_values"].shape[-2:]
        return (height // PATCH) * (width // PATCH)

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """All crops in one call."""
        pixels = torch.cat([a.tensors["pixel_values"] for a in artifacts])
        return list(self._features(pixel_values=pixels).pooler_output)


def toy_registry(
    model_class: type[PreTrainedModel] = ToyForCausalLM, adapter: type[ToyAdapter] = ToyAdapter
) -> AdapterRegistry:
    """A registry that also knows the toys."""
    registry = AdapterRegistry(entry_points=False)
    registry.register_adapter(
        model_class.__name__, adapter, model_class=model_class, config_class=ToyConfig
    )
    return registry


def build_toy(
    folder: Path,
    *,
    row_width: int = 2 * HIDDEN,
    declared_width: int | None = 2 * HIDDEN,
    model_class: type[PreTrainedModel] = ToyForCausalLM,
    seed: int = 0,
) -> Path:
    """Write a toy checkpoint: rows of ``row_width`` columns, declared as ``declared_width``."""
    words = vocabulary.QWEN_VL
    config = ToyConfig(
        vocab_size=words.size,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=words.id_of(words.eos),
        bos_token_id=None,
        row_width=row_width,
        declared_width=declared_width,
        image_token_id=words.id_of(IMAGE_TOKEN),
    )
    model = model_class(config)
    randomise(model, seed)
    with no_progress_bars():
        model.save_pretrained(folder)
    build_tokenizer(words).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, '
        '"crop_size": {"height": 32, "width": 32}}\n'
    )
    return folder
