"""Faults of adapters: what they declare, encode and embed; and of the merge of pictures and text.

Declarations and encoders are those of a toy that is loaded from a checkpoint; the merge runs under
``firstlight verify``'s own check of it.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from transformers import PreTrainedModel

from firstlight.contract import InputContract
from firstlight.core.plan import Chunk
from firstlight.engine import merge_check
from firstlight.engine.merge import merge
from firstlight.errors import ContractError, MediaError
from firstlight.media import decode_image
from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.loading import load_model
from firstlight.testing import picture
from tests.faults.fault import Caught, Fault, Level, collected
from tests.toy import (
    HIDDEN,
    SIDE,
    MisspeltToy,
    ToyAdapter,
    ToyForCausalLM,
    build_toy,
    toy_registry,
)

_CONTRACT, _PROOF = Level.CONTRACT, Level.PROOF
WIDTH = 2 * HIDDEN


class UndeclaredPlane(ToyAdapter):
    """Gives a plane that no declaration knows."""

    def planes(self, ids: Tensor) -> Mapping[str, Tensor]:
        return {"kinds": torch.zeros_like(ids)}


class RowMissing(ToyAdapter):
    """Drops the last row of each picture."""

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        return [rows[:-1] for rows in super().encode(artifacts)]


class NarrowPictures(ToyAdapter):
    """Pictures get the tower's first columns alone."""

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        return [rows[:, :HIDDEN] for rows in super().encode(artifacts)]


class Split(ToyAdapter):
    """A healthy adapter whose rows have two segments."""

    input_segments = (("tokens", HIDDEN), ("deepstack.0", HIDDEN))

    def text_rows(self, ids: Tensor) -> Tensor:
        return super().text_rows(ids)[:, :HIDDEN]


class SwappedSegments(Split):
    """The toy's pictures, with the two halves of each row in the wrong order."""

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        return [rows.roll(HIDDEN, 1) for rows in super().encode(artifacts)]


def _loaded(
    adapter: type[ToyAdapter] = ToyAdapter,
    model_class: type[PreTrainedModel] = ToyForCausalLM,
    declared: int | None = WIDTH,
) -> Adapter:
    with tempfile.TemporaryDirectory() as folder:
        path = build_toy(Path(folder), declared_width=declared, model_class=model_class)
        loaded = load_model(path, dtype="float32", registry=toy_registry(model_class, adapter))
        # As a request does: the picture is encoded and compared with its places.
        assert loaded.image_processor is not None
        artifact = loaded.image_processor.artifact(decode_image(picture(SIDE, SIDE)))
        loaded.adapter.media_rows([artifact])
        return loaded.adapter


def _examined(load: Callable[[], Adapter]) -> Callable[[], Caught]:
    """Load, encode a picture, check the merge."""

    def examine() -> Caught:
        found: dict[Level, list[Any]] = {_CONTRACT: [], _PROOF: []}
        try:
            found[_PROOF] += merge_check.check_merge(load())[1]
        except (ContractError, MediaError) as error:
            found[_CONTRACT].append(error)
        return collected(found)

    return examine


@functools.cache
def _healthy() -> Adapter:
    return _loaded(Split)


Merge = Callable[[Tensor, Sequence[Chunk[Any]], Adapter, InputContract], None]


@dataclass(frozen=True)
class _Changed:
    """What the merge reads of a request, with something changed."""

    prompt: Any
    media: dict[int, Tensor]
    ids: Callable[[int, int], list[int]]
    known: int


def _through(
    change: Callable[[Tensor], Tensor] = lambda rows: rows, *, restarts: bool = False
) -> Merge:
    """The real merge of changed requests.

    Args:
        change: makes a picture's rows wrong.
        restarts: each chunk counts a picture's rows from zero.
    """

    def wrong(
        into: Tensor, chunks: Sequence[Chunk[Any]], adapter: Adapter, contract: InputContract
    ) -> None:
        merge(into, cast(Any, [changed(chunk) for chunk in chunks]), adapter, contract)

    def changed(chunk: Chunk[Any]) -> Chunk[Any]:
        request = chunk.request
        prompt = request.prompt
        if restarts:
            clipped = [span.clip(chunk.start, chunk.end) for span in prompt.spans]
            spans = tuple(replace(span, row=0) for span in clipped if span is not None)
            prompt = replace(prompt, spans=spans)
        media = {item: change(rows) for item, rows in request.media.items()}
        return Chunk(_Changed(prompt, media, request.ids, request.known), chunk.start, chunk.end)

    return wrong


def _stale_segments(
    into: Tensor, chunks: Sequence[Chunk[Any]], adapter: Adapter, contract: InputContract
) -> None:
    left = into[:, HIDDEN:].clone()
    merge(into, cast(Any, chunks), adapter, contract)
    written = into[:, HIDDEN:].ne(0).any(1, keepdim=True)
    into[:, HIDDEN:] = torch.where(written, into[:, HIDDEN:], left)


def _late_text(
    into: Tensor, chunks: Sequence[Chunk[Any]], adapter: Adapter, contract: InputContract
) -> None:
    """Text rows are written over the pictures' last rows."""
    merge(into, cast(Any, chunks), adapter, contract)
    n = sum(len(chunk) for chunk in chunks)
    into[1:n, :HIDDEN] = into[: n - 1, :HIDDEN].clone()


def _merged(wrong: Merge) -> Callable[[], Caught]:
    def examine() -> Caught:
        with mock.patch.object(merge_check, "merge", wrong):
            return collected({_PROOF: merge_check.check_merge(_healthy())[1]})

    return examine


def healthy() -> Caught:
    """The control: the same checks over an unmutated adapter and the real merge."""
    return _merged(merge)()


def _without(rows: Tensor) -> Tensor:
    return torch.cat([rows[:, :HIDDEN], torch.zeros_like(rows[:, HIDDEN:])], dim=1)


FAULTS = (
    Fault(
        "a width declared that is not written",
        "The model declares fewer columns than its merge writes.",
        "sglang 33726",
        _examined(lambda: _loaded(declared=HIDDEN)),
        {_CONTRACT: "declare"},
    ),
    Fault(
        "a width that is not declared",
        "A model with wide rows declares nothing, so hidden_size is taken.",
        "sglang 33726",
        _examined(lambda: _loaded(declared=None)),
        {_CONTRACT: "input_embeds_hidden_size"},
    ),
    Fault(
        "a declaration that is misspelt",
        "The width is declared under a name that nothing reads.",
        "sglang 33726",
        _examined(lambda: _loaded(model_class=MisspeltToy)),
        {_CONTRACT: "did you mean"},
    ),
    Fault(
        "a plane that is not declared",
        "The adapter gives a per-token input that no slot holds.",
        "sglang 33726; vllm 43716",
        _examined(lambda: _loaded(UndeclaredPlane)),
        {_CONTRACT: "'kinds'"},
    ),
    Fault(
        "a picture of fewer rows than places",
        "The encoder gives a row less than the prompt holds places for.",
        "vllm 55546 (case H13); sglang 32404",
        _examined(lambda: _loaded(RowMissing)),
        {_CONTRACT: "placeholders"},
    ),
    Fault(
        "a picture of hidden_size columns",
        "The encoder gives the first segment of a picture's rows and not the others.",
        "sglang 33726, 36595",
        _examined(lambda: _loaded(NarrowPictures)),
        {_CONTRACT: "media rows"},
    ),
    Fault(
        "a picture without its DeepStack segment",
        "The merge writes the first segment of a picture and leaves the others zero.",
        "sglang 33726; vllm 43617",
        _merged(_through(_without)),
        {_PROOF: "segment deepstack.0"},
    ),
    Fault(
        "segments permuted by the merge",
        "The merge writes each segment of a picture into the columns of another.",
        "sglang 33726",
        _merged(_through(lambda rows: rows.roll(HIDDEN, 1))),
        {_PROOF: "segment tokens"},
    ),
    Fault(
        "a picture shifted by one row",
        "Each place of a picture gets the row of the place before.",
        "vllm 57740 (case H08); sglang 37968",
        _merged(_through(lambda rows: rows.roll(1, 0))),
        {_PROOF: "segment tokens"},
    ),
    Fault(
        "the first half of a picture twice",
        "After a chunk's edge inside of a picture, its rows are counted from zero again.",
        "imp 1184 (case H09); sglang 22038",
        _merged(_through(restarts=True)),
        {_PROOF: "chunk"},
    ),
    Fault(
        "DeepStack of an earlier batch under text",
        "The merge leaves the later segments of text rows as they were.",
        "sglang 29018, 33726",
        _merged(_stale_segments),
        {_PROOF: "segment deepstack.0"},
    ),
    Fault(
        "rows one place too late",
        "The merge is off by one for all rows but the first.",
        "sglang 37968",
        _merged(_late_text),
        {_PROOF: "segment tokens"},
    ),
)

UNCAUGHT = (
    Fault(
        "segments encoded in another order",
        "The adapter's encoder concatenates the taps of the vision tower in the wrong order.",
        "none known; stays possible",
        _examined(lambda: _loaded(SwappedSegments)),
        {},
    ),
)
