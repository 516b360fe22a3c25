"""Text and media rows, written once into the ``input_embeds`` slot."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.plan import Chunk
from firstlight.core.span import Span
from firstlight.engine.sequence import Sequence
from firstlight.errors import MediaError
from firstlight.models.adapter import Adapter


def check_media(sequence: Sequence, rows: Seq[Tensor], contract: InputContract) -> None:
    """Compare encoder rows with the prompt's spans before anything is written.

    Args:
        rows: one ``[n, W]`` per picture, in prompt order.

    Raises:
        MediaError: a picture has other rows than its spans hold places.
        ProbeError: rows of another width than the contract's.
    """
    for item, tensor in enumerate(rows):
        places = sum(len(span) for span in sequence.prompt.spans if span.item == item)
        if tensor.shape[0] != places:
            raise MediaError(
                f"picture {item} was encoded into {tensor.shape[0]} rows, "
                f"but the prompt holds {places} places for it"
            )
        contract.check_written(tensor.shape[1], writer="the encoder", rows="media rows")


def merge(
    into: Tensor, chunks: Seq[Chunk[Sequence]], adapter: Adapter, contract: InputContract
) -> None:
    """Write the batch's rows.

    Every place is known on the host from the spans: no mask is built and no device is asked. Text
    rows that fill only the first segment leave the others neutral (zero).

    Args:
        into: ``[T, W]`` view of the slot; rows ``[:n]`` are written, n the batch's tokens.
    """
    text: list[tuple[int, int]] = []
    ids: list[int] = []
    row = 0
    for chunk in chunks:
        sequence, at = chunk.request, chunk.start
        for span in _clipped(sequence.prompt.spans, chunk):
            _text_run(text, ids, sequence, at, span.start, row)
            row += span.start - at
            assert sequence.media is not None, "a chunk with media is encoded before it is merged"
            rows = sequence.media[span.item][span.row : span.row + len(span)]
            into[row : row + len(span)].copy_(rows)
            row += len(span)
            at = span.end
        _text_run(text, ids, sequence, at, chunk.end, row)
        row += chunk.end - at
    if ids:
        _write_text(into, text, adapter.text_rows(torch.tensor(ids, device=into.device)), contract)


def _clipped(spans: Seq[Span], chunk: Chunk[Sequence]) -> list[Span]:
    parts = (span.clip(chunk.start, chunk.end) for span in spans)
    return sorted((p for p in parts if p is not None), key=lambda p: p.start)


def _text_run(
    runs: list[tuple[int, int]], ids: list[int], sequence: Sequence, start: int, end: int, row: int
) -> None:
    if end > start:
        runs.append((row, end - start))
        ids.extend(sequence.ids(start, end))


def _write_text(
    into: Tensor, runs: list[tuple[int, int]], rows: Tensor, contract: InputContract
) -> None:
    width = rows.shape[1]
    if width != contract.segments[0].width:
        contract.check_written(width, writer="text_rows", rows="text rows")
    done = 0
    for row, n in runs:
        into[row : row + n, :width].copy_(rows[done : done + n])
        into[row : row + n, width:].zero_()
        done += n
