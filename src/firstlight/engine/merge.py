"""Text and media rows, written once into the ``input_embeds`` slot."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.plan import Chunk
from firstlight.core.span import Span
from firstlight.engine.sequence import Sequence
from firstlight.engine.token_ids import TokenIds
from firstlight.errors import SlotError
from firstlight.models.adapter import Adapter


def merge(
    into: Tensor, chunks: Seq[Chunk[Sequence]], adapter: Adapter, contract: InputContract
) -> None:
    """Write the batch's rows.

    Every place is known on the host from the spans: no mask is built and no device is asked. Text
    rows that fill only the first segment leave the others neutral (zero).

    Args:
        into: ``[T, W]`` view of the slot; rows ``[:n]`` are written, n the batch's tokens.

    Raises:
        SlotError: rows that do not fit their places in number, width or dtype; nothing is written.
            The encoder's and the probe's checks come before, each with an error of the request's or
            the model's own; this one keeps a step from writing what went past them.
    """
    text: list[tuple[int, int]] = []
    media: list[tuple[int, Tensor]] = []
    ids = TokenIds()
    row = 0
    for chunk in chunks:
        sequence, at = chunk.request, chunk.start
        for span in _clipped(sequence.prompt.spans, chunk):
            _text_run(text, ids, sequence, at, span.start, row)
            row += span.start - at
            media.append((row, _media_rows(sequence, span, into)))
            row += len(span)
            at = span.end
        _text_run(text, ids, sequence, at, chunk.end, row)
        row += chunk.end - at
    rows = adapter.text_rows(ids.on(into.device)) if len(ids) else None
    if rows is not None:
        _check_text(rows, len(ids), into, contract)
    for at, part in media:
        into[at : at + part.shape[0]].copy_(part)
    if rows is not None:
        _write_text(into, text, rows)


def _clipped(spans: Seq[Span], chunk: Chunk[Sequence]) -> list[Span]:
    parts = (span.clip(chunk.start, chunk.end) for span in spans)
    return sorted((p for p in parts if p is not None), key=lambda p: p.start)


def _text_run(
    runs: list[tuple[int, int]], ids: TokenIds, sequence: Sequence, start: int, end: int, row: int
) -> None:
    """Add a run of text rows to ``(first row, rows)``; one that goes on is one with the last."""
    if end <= start:
        return
    n = end - start
    if runs and sum(runs[-1]) == row:  # e.g. the requests of a decode step: one copy for all
        row, before = runs.pop()
        n += before
    runs.append((row, n))
    ids.add(sequence, start, end)


def _media_rows(sequence: Sequence, span: Span, into: Tensor) -> Tensor:
    """The span's rows of its item, checked against the slot."""
    assert sequence.media, "a chunk with media is encoded before it is merged"
    rows = sequence.media[span.item]
    end = span.row + len(span)
    if rows.shape[0] < end or rows.shape[1:] != into.shape[1:] or rows.dtype != into.dtype:
        raise SlotError(
            f"picture {span.item} has rows {tuple(rows.shape)} of {rows.dtype}, but its span needs "
            f"rows {span.row} to {end} of {into.shape[1]} columns of {into.dtype}"
        )
    return rows[span.row : end]


def _check_text(rows: Tensor, n: int, into: Tensor, contract: InputContract) -> None:
    widths = {contract.segments[0].width, contract.input_embeds_hidden_size}
    if rows.shape[0] != n or rows.shape[1] not in widths or rows.dtype != into.dtype:
        raise SlotError(
            f"text_rows gives {tuple(rows.shape)} of {rows.dtype} for {n} tokens; the slot takes "
            f"{' or '.join(map(str, sorted(widths)))} columns of {into.dtype}"
        )


def _write_text(into: Tensor, runs: list[tuple[int, int]], rows: Tensor) -> None:
    width, done = rows.shape[1], 0
    for row, n in runs:
        into[row : row + n, :width].copy_(rows[done : done + n])
        into[row : row + n, width:].zero_()
        done += n
