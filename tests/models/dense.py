"""A one-request engine in memory: the adapter's whole path without pages, graphs or scheduling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from firstlight.attention import AttentionLayer
from firstlight.core.span import Span
from firstlight.media import decode_image
from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.loading import LoadedModel, load_model


@dataclass
class DenseContext:
    """An attention context that keeps every layer's keys and values of one request.

    ``blocks`` are the ranges of positions whose rows see each other.
    """

    blocks: Sequence[tuple[int, int]] = ()
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention by its definition, in the layout of the hook."""
        before = self.keys.get(layer.index, k[:0])
        keys = self.keys[layer.index] = torch.cat([before, k])
        values = self.values[layer.index] = torch.cat([self.values.get(layer.index, v[:0]), v])
        share = q.shape[1] // k.shape[1]
        scores = torch.einsum("qhd,khd->hqk", q, keys.repeat_interleave(share, 1)) * layer.scale
        row = torch.arange(len(q))[:, None] + len(before)
        column = torch.arange(len(keys))[None]
        seen = column <= row
        for start, end in self.blocks:
            seen = seen | ((row >= start) & (row < end) & (column >= start) & (column < end))
        if layer.window:
            seen = seen & (column > row - layer.window)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(share, 1))


@dataclass(frozen=True)
class Inputs:
    embeds: Tensor
    positions: Tensor
    planes: Mapping[str, Tensor]
    attention: DenseContext


@dataclass(frozen=True)
class Prompt:
    """Ids with placeholders expanded, the spans that media rows fill, and the artifacts."""

    ids: list[int]
    spans: list[Span]
    artifacts: list[Artifact]


def load(path: Path) -> LoadedModel:
    """The checkpoint in fp32."""
    return load_model(path, dtype="float32")


def compose(loaded: LoadedModel, parts: Sequence[str | Image.Image]) -> Prompt:
    """A user turn of text and pictures, in this order, through the chat template."""
    adapter, tokenizer = loaded.adapter, loaded.tokenizer
    content = [
        {"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts
    ]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    if adapter.placeholder:
        text = text.replace(adapter.placeholder, adapter.placeholder_text)
    images = [p for p in parts if not isinstance(p, str)]
    artifacts = [artifact_of(loaded, image) for image in images]
    ids: list[int] = []
    spans: list[Span] = []
    item = 0
    for token in tokenizer.encode(text, add_special_tokens=False):
        if token != adapter.media_token_id or adapter.media_token_id is None:
            ids.append(token)
            continue
        spans += media_spans(adapter, artifacts[item], item, len(ids))
        ids += adapter.expand(artifacts[item])
        item += 1
    assert item == len(artifacts)
    return Prompt(ids, spans, artifacts)


def artifact_of(loaded: LoadedModel, image: Image.Image) -> Artifact:
    """The picture as the model's processor prepares it."""
    assert loaded.image_processor is not None
    return loaded.image_processor.artifact(decode_image(image))


def media_spans(adapter: Adapter, artifact: Artifact, item: int, start: int) -> list[Span]:
    """Runs of the media token inside one expansion that begins at ``start``."""
    spans: list[Span] = []
    row = 0
    for offset, token in enumerate(adapter.expand(artifact)):
        if token != adapter.media_token_id:
            continue
        at = start + offset
        if spans and spans[-1].end == at:
            last = spans.pop()
            spans.append(Span(item, last.start, at + 1, last.row))
        else:
            spans.append(Span(item, at, at + 1, row))
        row += 1
    return spans


def merged_rows(adapter: Adapter, prompt: Prompt) -> Tensor:
    """Text and media rows in one buffer of the contract's width; absent segments are zero."""
    text = adapter.text_rows(torch.tensor(prompt.ids))
    rows = torch.zeros(len(prompt.ids), adapter.contract.input_embeds_hidden_size)
    rows[:, : text.shape[1]] = text
    media = adapter.media_rows(prompt.artifacts)
    for span in prompt.spans:
        rows[span.start : span.end] = media[span.item][span.row : span.row + len(span)]
    return rows


def decode(loaded: LoadedModel, prompt: Prompt, n: int) -> Iterator[int]:
    """Greedy ids, computed as they are asked for."""
    for logits in steps(loaded, prompt, n):
        yield int(logits.argmax())


def steps(loaded: LoadedModel, prompt: Prompt, n: int) -> Iterator[Tensor]:
    """Logits ``[vocabulary]`` of up to n greedy steps; an end token ends."""
    adapter = loaded.adapter
    body, context = adapter.body(), DenseContext(adapter.blocks(prompt.spans))
    where = adapter.positions(len(prompt.ids), prompt.spans, prompt.artifacts)
    with torch.no_grad():
        rows, positions = merged_rows(adapter, prompt), torch.from_numpy(where.prompt)
    for step in range(n):
        with torch.no_grad():
            logits = adapter.logits(body(Inputs(rows, positions, {}, context))[-1:])[0]
            chosen = logits.argmax()
            text = adapter.text_rows(chosen[None])
        yield logits
        if int(chosen) in loaded.eos_token_ids:
            return
        rows = torch.zeros(1, adapter.contract.input_embeds_hidden_size)
        rows[:, : text.shape[1]] = text
        positions = torch.full((adapter.position_rank, 1), where.next + step, dtype=torch.int64)


def generate(loaded: LoadedModel, prompt: Prompt, n: int) -> tuple[Tensor, list[int]]:
    """Logits ``[vocabulary]`` at the prompt's end, and up to n greedy ids."""
    logits = list(steps(loaded, prompt, n))
    return logits[0], [int(x.argmax()) for x in logits]
