"""Gemma 3: which rows see each other, and what its adapter must not leave out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.attention import AttentionLayer
from firstlight.contract import MaskKind
from firstlight.core.span import Span
from firstlight.errors import ModelLoadError
from firstlight.models.loading import LoadedModel
from tests.conftest import TinyCheckpoint
from tests.models.dense import DenseContext, Inputs, Prompt, compose, generate, load, merged_rows
from tests.oracle import oracle_generate
from tests.pictures import picture

SMALL, LARGE = picture(48, 32, seed=1), picture(40, 72, seed=2)
ROWS, WINDOW = 16, 8


@pytest.fixture(scope="module")
def loaded(tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    return load(tiny_checkpoint("gemma3_vl"))


@pytest.fixture(scope="module")
def prompt(loaded: LoadedModel) -> Prompt:
    return compose(loaded, ["a ", SMALL, "b ", LARGE, " compare"])


def hidden(loaded: LoadedModel, prompt: Prompt, context: DenseContext) -> Tensor:
    """Hidden states ``[T, hidden_size]`` of the whole prompt."""
    adapter = loaded.adapter
    where = adapter.positions(len(prompt.ids), prompt.spans, prompt.artifacts)
    with torch.no_grad():
        rows = merged_rows(adapter, prompt)
        return adapter.body()(Inputs(rows, torch.from_numpy(where.prompt), {}, context))


def transformers_hidden(loaded: LoadedModel, prompt: Prompt, path: Path) -> Tensor:
    """The same from transformers' own forward, for every position of the prompt."""
    import transformers

    model = transformers.Gemma3ForConditionalGeneration.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    ids = torch.tensor([prompt.ids])
    pixels = torch.cat([a.tensors["pixel_values"] for a in prompt.artifacts])
    types = torch.tensor([[int(i == loaded.adapter.media_token_id) for i in prompt.ids]])
    with torch.no_grad():
        out = model.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=pixels,
            token_type_ids=types,
        )
    states: Tensor = out.last_hidden_state[0]
    return states


def test_the_declared_mask_is_that_of_a_prefix_lm(loaded: LoadedModel) -> None:
    assert loaded.adapter.contract.mask is MaskKind.PREFIX_LM


def test_each_image_is_a_block_of_its_rows_alone(loaded: LoadedModel, prompt: Prompt) -> None:
    adapter = loaded.adapter
    blocks = adapter.blocks(prompt.spans)
    assert [end - start for start, end in blocks] == [ROWS, ROWS]
    inside = {p for start, end in blocks for p in range(start, end)}
    assert inside == {p for p, i in enumerate(prompt.ids) if i == adapter.media_token_id}


def test_a_prompt_of_text_has_no_blocks(loaded: LoadedModel) -> None:
    assert loaded.adapter.blocks(compose(loaded, ["What is this?"]).spans) == ()


def test_media_rows_without_a_token_between_them_are_one_block(loaded: LoadedModel) -> None:
    spans = [Span(1, 14, 18, 0), Span(0, 3, 10, 0), Span(0, 10, 14, 7), Span(2, 20, 22, 0)]
    assert loaded.adapter.blocks(spans) == ((3, 18), (20, 22))


def test_every_position_of_a_prompt_equals_transformers(
    loaded: LoadedModel, prompt: Prompt, tiny_checkpoint: TinyCheckpoint
) -> None:
    expected = transformers_hidden(loaded, prompt, tiny_checkpoint("gemma3_vl"))
    got = hidden(loaded, prompt, DenseContext(loaded.adapter.blocks(prompt.spans)))
    assert (got - expected).abs().max() < 1e-4


class Widened(DenseContext):
    """The other reading of the rule: a row sees its whole block, however far back."""

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        share = q.shape[1] // k.shape[1]
        keys, values = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        row, column = torch.arange(len(q))[:, None], torch.arange(len(k))[None]
        seen = column <= row
        if layer.window:
            seen = seen & (column > row - layer.window)
        for start, end in self.blocks:
            seen = seen | ((row >= start) & (row < end) & (column >= start) & (column < end))
        scores = torch.einsum("qhd,khd->hqk", q, keys) * layer.scale
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values)


@pytest.mark.parametrize(
    "make",
    [
        lambda blocks: DenseContext(()),
        lambda blocks: DenseContext(blocks[:1]),
        lambda blocks: DenseContext(blocks[1:]),
        lambda blocks: DenseContext([(blocks[0][0], blocks[1][1])]),
        lambda blocks: DenseContext([(start - 1, end) for start, end in blocks]),
        lambda blocks: DenseContext([(start, end + 1) for start, end in blocks]),
        lambda blocks: Widened(blocks),
    ],
    ids=["none", "first only", "second only", "joined", "starts early", "ends late", "widened"],
)
def test_any_other_rule_for_the_blocks_shows_at_the_prompts_end(
    make: Callable[[Any], DenseContext], loaded: LoadedModel, prompt: Prompt
) -> None:
    blocks = loaded.adapter.blocks(prompt.spans)
    right = hidden(loaded, prompt, DenseContext(blocks))
    wrong = hidden(loaded, prompt, make(blocks))
    assert (right[-1] - wrong[-1]).abs().max() > 1e-3


def test_a_chunk_that_ends_with_the_block_changes_nothing(
    loaded: LoadedModel, prompt: Prompt
) -> None:
    adapter = loaded.adapter
    blocks = adapter.blocks(prompt.spans)
    whole = hidden(loaded, prompt, DenseContext(blocks))
    where = torch.from_numpy(
        adapter.positions(len(prompt.ids), prompt.spans, prompt.artifacts).prompt
    )
    context, body = DenseContext(blocks), adapter.body()
    with torch.no_grad():
        rows = merged_rows(adapter, prompt)
        cuts = [0, blocks[0][1], blocks[1][0], blocks[1][1], len(rows)]
        parts = [body(Inputs(rows[a:b], where[:, a:b], {}, context)) for a, b in pairwise(cuts)]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=1e-5)


def test_text_rows_are_scaled_and_media_rows_are_not(loaded: LoadedModel, prompt: Prompt) -> None:
    adapter = loaded.adapter
    model, ids = adapter.model, torch.tensor([3, 70, 5])
    plain = model.get_input_embeddings().weight[ids]
    torch.testing.assert_close(adapter.text_rows(ids), plain * adapter.hidden_size**0.5)
    with torch.no_grad():
        pixels = prompt.artifacts[0].tensors["pixel_values"]
        tower = model.model.vision_tower(pixel_values=pixels).last_hidden_state
        (rows,) = adapter.media_rows(prompt.artifacts[:1])
        torch.testing.assert_close(rows, model.model.multi_modal_projector(tower)[0])


def test_layers_ask_for_their_own_window_and_for_the_configured_scale(loaded: LoadedModel) -> None:
    assert [layer.window for layer in loaded.layers] == [WINDOW, None, WINDOW]
    assert {layer.scale for layer in loaded.layers} == {24**-0.5}


def test_layers_with_a_window_have_a_rope_of_their_own(
    loaded: LoadedModel, prompt: Prompt, tiny_checkpoint: TinyCheckpoint
) -> None:
    context = DenseContext(loaded.adapter.blocks(prompt.spans))
    other = load(tiny_checkpoint("gemma3_vl"))
    rope = other.adapter.decoder.rotary_emb
    rope.sliding_attention_inv_freq = rope.full_attention_inv_freq
    right = hidden(loaded, prompt, context)
    wrong = hidden(other, prompt, DenseContext(context.blocks))
    assert (right[-1] - wrong[-1]).abs().max() > 1e-3


def changed(path: Path, folder: Path, **fields: object) -> Path:
    """A copy of a checkpoint with other fields in its text configuration."""
    shutil.copytree(path, folder)
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config).update(fields)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_soft_cap_that_the_models_forward_leaves_out_is_left_out(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    path = changed(tiny_checkpoint("gemma3_vl"), tmp_path / "capped", final_logit_softcapping=0.5)
    capped = load(path)
    prompt = compose(capped, [SMALL, "What is it?"])
    logits, _ = generate(capped, prompt, 1)
    assert logits.abs().max() > 0.5
    expected = oracle_generate(path, prompt.ids, [SMALL], 1)
    assert (logits - expected.logits).abs().max() < 1e-4


def test_an_encoder_of_gemmas_kind_is_refused(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    path = changed(
        tiny_checkpoint("gemma3"), tmp_path / "encoder", use_bidirectional_attention=True
    )
    with pytest.raises(ModelLoadError, match="use_bidirectional_attention = True"):
        load(path)
