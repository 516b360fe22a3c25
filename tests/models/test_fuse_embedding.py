"""An embedding that is looked up in the packed LM head of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from firstlight.config import EngineConfig
from firstlight.models.fuse import FuseReport, Kit, NativeLinear, fuse_model
from firstlight.models.fuse.embedding import PackedEmbedding, can_share, share_head
from firstlight.models.loading import LoadedModel, load_model
from firstlight.native import Kernels, NativeUnavailableError, WeightFormat, open_kernels
from tests.conftest import TinyCheckpoint

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    try:
        return open_kernels(EngineConfig().cache_dir)
    except NativeUnavailableError as error:
        pytest.skip(str(error))


def packed(embedding: nn.Embedding, kernels: Kernels) -> NativeLinear:
    head = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=False)
    head.weight = embedding.weight
    made = Kit(kernels).linear([head])
    assert isinstance(made, NativeLinear)
    return made


def tied(path: TinyCheckpoint, family: str, dtype: str) -> LoadedModel:
    """A checkpoint whose head has the weights of the embedding."""
    model = load_model(str(path(family)), dtype=dtype)
    inner: Any = model.adapter.model
    inner.get_output_embeddings().weight = inner.get_input_embeddings().weight
    return model


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 15, 16, 37])
def test_every_row_has_the_bits_of_the_embedding(
    rows: int, dtype: torch.dtype, kernels: Kernels
) -> None:
    embedding = nn.Embedding(rows, 10).to(dtype)
    found = PackedEmbedding(packed(embedding, kernels))
    ids = torch.randperm(rows)
    assert torch.equal(found(ids), embedding(ids))
    assert torch.equal(found(ids[None, :, None]), embedding(ids[None, :, None]))


def test_no_ids_give_no_rows(kernels: Kernels) -> None:
    found = PackedEmbedding(packed(nn.Embedding(20, 8), kernels))
    assert found(torch.zeros(0, dtype=torch.int64)).shape == (0, 8)


@pytest.mark.parametrize("wrong", [-1, 20, 31, 32])
def test_an_id_outside_of_the_vocabulary_is_refused_with_its_limits(
    wrong: int, kernels: Kernels
) -> None:
    found = PackedEmbedding(packed(nn.Embedding(20, 8), kernels))
    with pytest.raises(IndexError, match=f"{wrong}.* there are 20"):
        found(torch.tensor([3, wrong]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["qwen3", "gemma3", "qwen3_vl"])
def test_a_fused_model_holds_tied_weights_once_and_gives_the_same_rows(
    family: str, dtype: str, tiny_checkpoint: TinyCheckpoint, kernels: Kernels
) -> None:
    adapter = tied(tiny_checkpoint, family, dtype).adapter
    ids = torch.arange(adapter.vocab_size)
    before, weight = adapter.text_rows(ids), adapter.model.get_input_embeddings().weight
    address, dtype_before = weight.data_ptr(), adapter.dtype
    report = fuse_model(adapter, Kit(kernels))
    assert report.swapped["embedding"] == 1
    assert torch.equal(adapter.text_rows(ids), before)
    assert adapter.dtype is dtype_before
    head = adapter.model.get_output_embeddings()
    assert adapter.model.get_input_embeddings().panels.data_ptr() == head.data.data_ptr()
    assert address not in {p.data_ptr() for p in adapter.model.parameters()}


def test_a_head_in_codes_leaves_the_embedding_as_it_is(
    tiny_checkpoint: TinyCheckpoint, kernels: Kernels
) -> None:
    adapter = tied(tiny_checkpoint, "qwen3", "float32").adapter
    embedding = adapter.model.get_input_embeddings()
    report = fuse_model(adapter, Kit(kernels, WeightFormat.INT8))
    assert "embedding" not in report.swapped
    assert adapter.model.get_input_embeddings() is embedding


def test_an_embedding_that_does_more_than_a_lookup_stays(
    tiny_checkpoint: TinyCheckpoint, kernels: Kernels
) -> None:
    class Shifted(nn.Embedding):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__(weight.shape[0], weight.shape[1], _weight=weight)
            self.embed_scale = torch.tensor(2.0)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) * 2 + 1

    model = tied(tiny_checkpoint, "qwen3", "float32").adapter.model
    embedding = Shifted(model.get_input_embeddings().weight)
    model.set_input_embeddings(embedding)
    found = share_head(model, embedding, packed(embedding, kernels))
    assert found == "rows of the packed LM head are not those of the embedding"
    assert model.get_input_embeddings() is embedding


def test_a_kind_of_embedding_that_is_not_known_is_not_touched() -> None:
    class Other(nn.Embedding):
        pass

    assert can_share(nn.Embedding(4, 4), None)
    assert not can_share(Other(4, 4), None)
    assert not can_share(nn.Embedding(4, 4, max_norm=1.0), None)
    assert not can_share(nn.Embedding(4, 4), WeightFormat.INT8)


def test_a_large_tied_head_is_packed_where_the_embedding_can_share_it(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch, kernels: Kernels
) -> None:
    monkeypatch.setattr("firstlight.models.fuse.model._TIED_HEAD", 1)
    report = fuse_model(tied(tiny_checkpoint, "qwen3", "float32").adapter, Kit(kernels))
    assert report.swapped["LM head"] == 1
    without: FuseReport = fuse_model(tied(tiny_checkpoint, "qwen3", "float32").adapter)
    assert "it shares" in without.left["LM head"]
