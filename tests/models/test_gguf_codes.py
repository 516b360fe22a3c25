"""The codes of a quantised GGUF file are those that the kernels multiply with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from firstlight.models.fuse import Kit, NativeLinear, fuse_model
from firstlight.models.loading import load_model
from firstlight.native import Kernels, PackedWeight, WeightFormat
from tests.conftest import TinyCheckpoint
from tests.models.test_gguf import write_gguf
from tests.native.conftest import kernels, library  # noqa: F401
from tests.native.readers import read

Q4_1, Q8_0 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0


def values_of(tensor: Any) -> Tensor:
    """float64 ``[out_features, in_features]`` of a file's tensor, by the definition of its type."""
    n, k = tensor.data.shape[0], int(tensor.shape[0])
    raw = tensor.data.reshape(n, k // 32, -1)
    scale = np.ascontiguousarray(raw[..., :2]).view(np.float16).astype(np.float64)
    if tensor.tensor_type == Q8_0:
        return torch.from_numpy((raw[..., 2:].view(np.int8) * scale).reshape(n, k))
    assert tensor.tensor_type == Q4_1
    least = np.ascontiguousarray(raw[..., 2:4]).view(np.float16).astype(np.float64)
    codes = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1)
    return torch.from_numpy((codes * scale + least).reshape(n, k))


def in_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows as transformers has them: the two halves of each rotary head behind each other."""
    n, k = weight.shape
    return weight.view(heads, n // heads // 2, 2, k).transpose(1, 2).reshape(n, k)


def packed(module: Any) -> Tensor:
    """What a compiled layer multiplies with, float64."""
    assert isinstance(module, NativeLinear)
    sizes = module.out_features, module.in_features
    return read(PackedWeight(module.data, WeightFormat(module.format), *sizes, torch.float32))


@pytest.mark.parametrize(("kind", "format"), [(Q4_1, WeightFormat.INT4), (Q8_0, WeightFormat.INT8)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_codes_of_a_file_come_back_exactly(
    kind: Any,
    format: WeightFormat,
    dtype: str,
    kernels: Kernels,  # noqa: F811
    tiny_checkpoint: TinyCheckpoint,
    tmp_path: Path,
) -> None:
    path = write_gguf(
        brain_floats(tiny_checkpoint("llama"), tmp_path / "source"),
        tmp_path / "codes.gguf",
        {"_proj": kind, "lm_head": kind},
    )
    file = {t.name: values_of(t) for t in gguf.GGUFReader(path).tensors if t.tensor_type == kind}
    adapter = load_model(path, dtype=dtype, cache_dir=tmp_path).adapter
    fuse_model(adapter, Kit(kernels, format))
    heads, kv_heads = (
        adapter.text_config.num_attention_heads,
        adapter.text_config.num_key_value_heads,
    )
    for i, layer in enumerate(adapter.decoder.layers):
        block = {name: file[f"blk.{i}.{name}.weight"] for name in _NAMES}
        q, k = in_halves(block["attn_q"], heads), in_halves(block["attn_k"], kv_heads)
        attention = layer.self_attn
        joined = (
            packed(attention.qkv)
            if hasattr(attention, "qkv")  # the last layer has its queries apart
            else torch.cat([packed(attention.q), packed(attention.kv)])
        )
        assert torch.equal(joined, torch.cat([q, k, block["attn_v"]]))
        assert torch.equal(packed(attention.out), block["attn_output"])
        gate_up = torch.cat([block["ffn_gate"], block["ffn_up"]])
        assert torch.equal(packed(layer.mlp.gate_up), gate_up)
        assert torch.equal(packed(layer.mlp.down), block["ffn_down"])
    head = adapter.model.get_output_embeddings()
    assert head.format == int(format), "a head in 4 bits loses nothing by them"
    assert torch.equal(packed(head), file["output.weight"])


_NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def brain_floats(folder: Path, out: Path) -> Path:
    """A copy whose weights are bfloat16 values, as those of nearly all models are."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, out)
    weights = {n: w.bfloat16().float() for n, w in load_file(out / "model.safetensors").items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return out
