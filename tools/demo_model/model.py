"""The architecture of the demo model and a batched training forward equal to transformers'."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tools.demo_model.tokenizer import SPECIAL
from torch import Tensor, nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

VOCAB_SIZE = 768
HIDDEN = 256
POINTING_LAYERS = (2, 3)
"""Decoder layers whose first head is shown where to look during training."""
Module = Any
"""A transformers module, reached by attribute."""


def build_config() -> Qwen3VLConfig:
    text = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": 512,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [12, 10, 10],
            "mrope_interleaved": True,
        },
        "pad_token_id": SPECIAL.index("<|endoftext|>"),
        "tie_word_embeddings": False,
    }
    vision = {
        "depth": 5,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_heads": 4,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 144,
        "deepstack_visual_indexes": [1, 2],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=SPECIAL.index("<|image_pad|>"),
        video_token_id=SPECIAL.index("<|video_pad|>"),
        vision_start_token_id=SPECIAL.index("<|vision_start|>"),
        vision_end_token_id=SPECIAL.index("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def build_model(seed: int) -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(seed)
    return Qwen3VLForConditionalGeneration(build_config())


@dataclass(frozen=True)
class VisionOutput:
    """``tokens`` and each ``deepstack`` entry: ``[pictures, merged tokens, hidden]``."""

    tokens: Tensor
    deepstack: tuple[Tensor, ...]

    @property
    def total(self) -> Tensor:
        return self.tokens + sum(self.deepstack)


def _linear(x: Tensor, layer: nn.Linear, dtype: torch.dtype) -> Tensor:
    bias = None if layer.bias is None else layer.bias.to(dtype)
    return F.linear(x.to(dtype), layer.weight.to(dtype), bias)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return x.float() * cos + torch.cat((-second, first), dim=-1) * sin


def patchify(pixels: Tensor) -> Tensor:
    """``[B, H, W, 3]`` bytes -> ``[B, patches, 768]`` in merge order, in [-1, 1]."""
    batch, height, width, _ = pixels.shape
    x = pixels.float().div(127.5).sub(1.0)
    x = x.view(batch, height // 32, 2, 16, width // 32, 2, 16, 3)
    return x.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(batch, -1, 768)


class FastModel:
    """Runs the modules of a transformers model over pictures of one size at a time."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, dtype: torch.dtype) -> None:
        self.model = model
        self.dtype = dtype
        self.visual = model.model.visual
        self.text = model.model.language_model

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def _grid(self, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        grid = torch.tensor([[1, rows, columns]])
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=self.visual.num_grid_per_side,
            mode=self.visual.interpolation_mode,
            align_corners=self.visual.interpolation_align_corners,
            spatial_merge_size=2,
        )
        position_ids = get_vision_position_ids(grid, 2)
        cos, sin = self.visual.rotary_pos_emb(weights, position_ids)
        return indices, weights, cos, sin

    def see(self, patches: Tensor, rows: int, columns: int) -> VisionOutput:
        """Encode pictures of ``rows`` x ``columns`` patches."""
        indices, weights, cos, sin = self._grid(rows, columns)
        projection = self.visual.patch_embed.proj
        kernel = projection.weight.view(-1, 3, 2, 256).sum(2).view(-1, 768)
        x = F.linear(patches.to(self.dtype), kernel.to(self.dtype)).float() + projection.bias
        x = x + (self.visual.pos_embed(indices) * weights[:, :, None]).sum(1)
        features = []
        for number, block in enumerate(self.visual.blocks):
            x = _vision_block(x, block, cos, sin, self.dtype)
            if number in self.visual.deepstack_visual_indexes:
                place = list(self.visual.deepstack_visual_indexes).index(number)
                features.append(self._merge(x, self.visual.deepstack_merger_list[place], True))
        return VisionOutput(self._merge(x, self.visual.merger, False), tuple(features))

    def _merge(self, x: Tensor, merger: Module, post: bool) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length // 4, width * 4)
        x = merger.norm(x.view(shape)) if post else merger.norm(x).view(shape)
        inner = F.gelu(_linear(x, merger.linear_fc1, self.dtype))
        return _linear(inner, merger.linear_fc2, self.dtype).float()

    def read(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        start: int,
        vision: VisionOutput | None,
        wanted: Tensor,
        watched: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Final hidden states of the ``wanted`` tokens (flat indices into ``[B * T]``).

        Also the loss of the ``watched`` tokens' attention: tokens, and where each should look.

        The picture fills ``ids[:, start:start + tokens]`` of every row.
        """
        x = self.text.embed_tokens(ids)
        end = start
        if vision is not None:
            end = start + vision.tokens.shape[1]
            x = torch.cat((x[:, :start], vision.tokens, x[:, end:]), dim=1)
        cos, sin = self.text.rotary_emb(x, positions)
        cos, sin = cos[:, None], sin[:, None]
        last = len(self.text.layers) - 1
        loss = x.new_zeros(())
        for number, layer in enumerate(self.text.layers):
            mixed, query, key = _text_attention(x, layer, cos, sin, mask, self.dtype)
            if number in POINTING_LAYERS and len(watched[0]):
                loss = loss + _pointing_loss(query[:, 0], key[:, 0], mask, *watched)
            if number == last:
                x, mixed = x.flatten(0, 1)[wanted], mixed.flatten(0, 1)[wanted]
            x = _text_rest(x, mixed, layer, self.dtype)
            if vision is not None and number < len(vision.deepstack):
                middle = x[:, start:end] + vision.deepstack[number]
                x = torch.cat((x[:, :start], middle, x[:, end:]), dim=1)
        return _rms(x, self.text.norm), loss

    def logits(self, hidden: Tensor) -> Tensor:
        return _linear(hidden, self.model.lm_head, self.dtype).float()


def _rms(x: Tensor, norm: Module) -> Tensor:
    x = x.float()
    weight: Tensor = norm.weight
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    return x * scale * weight


def _vision_block(x: Tensor, block: Module, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    batch, length, width = x.shape
    attention = block.attn
    qkv = _linear(block.norm1(x), attention.qkv, dtype)
    query, key, value = qkv.view(batch, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(
        _rotate(query, cos, sin), _rotate(key, cos, sin), value.float()
    )
    mixed = mixed.transpose(1, 2).reshape(batch, length, width)
    x = x + _linear(mixed, attention.proj, dtype)
    inner = F.gelu(_linear(block.norm2(x), block.mlp.linear_fc1, dtype), approximate="tanh")
    return x + _linear(inner, block.mlp.linear_fc2, dtype)


def _text_attention(
    x: Tensor, layer: Module, cos: Tensor, sin: Tensor, mask: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """What attention mixed for each token, and the queries and keys it used."""
    batch, length, _ = x.shape
    attention = layer.self_attn
    y = _rms(x, layer.input_layernorm).to(dtype)
    query = _linear(y, attention.q_proj, dtype).view(batch, length, 4, 64)
    key = _linear(y, attention.k_proj, dtype).view(batch, length, 2, 64)
    value = _linear(y, attention.v_proj, dtype).view(batch, length, 2, 64).float()
    query = _rotate(_rms(query, attention.q_norm).transpose(1, 2), cos, sin)
    key = _rotate(_rms(key, attention.k_norm).transpose(1, 2), cos, sin)
    mixed = F.scaled_dot_product_attention(
        query,
        key.repeat_interleave(2, dim=1),
        value.transpose(1, 2).repeat_interleave(2, dim=1),
        attn_mask=mask,
    )
    return mixed.transpose(1, 2).reshape(batch, length, -1), query, key


def _pointing_loss(
    query: Tensor, key: Tensor, mask: Tensor, pointing: Tensor, pointed: Tensor
) -> Tensor:
    """Cross-entropy between one head's attention and where it should look."""
    length = query.shape[1]
    scores = torch.einsum("pd,ptd->pt", query.flatten(0, 1)[pointing], key[pointing // length])
    visible = mask[:, 0].flatten(0, 1)[pointing]
    scores = (scores * 0.125).masked_fill(~visible, -1e9)
    return F.cross_entropy(scores, pointed)


def _text_rest(x: Tensor, mixed: Tensor, layer: Module, dtype: torch.dtype) -> Tensor:
    x = x + _linear(mixed, layer.self_attn.o_proj, dtype)
    y = _rms(x, layer.post_attention_layernorm).to(dtype)
    gate = F.silu(_linear(y, layer.mlp.gate_proj, dtype))
    inner = gate * _linear(y, layer.mlp.up_proj, dtype)
    return x + _linear(inner, layer.mlp.down_proj, dtype)
