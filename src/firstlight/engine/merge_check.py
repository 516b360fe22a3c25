"""Is every row that the merge writes the row that its position asks for, in every segment?

Proofs of graphs begin at the slots. This check covers the step before: text and media rows, spans
that chunk borders cut, two pictures, two requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.plan import Chunk
from firstlight.core.span import Span
from firstlight.engine.merge import merge
from firstlight.engine.prompt import Prompt
from firstlight.graphs.proof import Finding
from firstlight.graphs.proof.compare import difference
from firstlight.models.adapter import Adapter

LENGTH = 24
_SPANS = (Span(0, 2, 7), Span(1, 9, 13), Span(1, 15, 18, row=4))  # the second one is interleaved
_ROWS = (5, 7)
_GARBAGE = 7.5
COMPARED = "merged rows and the rows of their positions"


@dataclass
class _Request:
    """What the merge reads of a sequence."""

    prompt: Prompt
    media: dict[int, Tensor]
    rows: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def known(self) -> int:
        """Positions whose token ids the host has: all."""
        return len(self.prompt.ids)

    def ids(self, start: int, end: int) -> list[int]:
        """Token ids at positions ``[start, end)``."""
        return self.prompt.ids[start:end]


def check_merge(adapter: Adapter, seed: int = 0) -> tuple[int, tuple[Finding, ...]]:
    """Merge several batches and look at every row.

    Returns:
        how many batches were merged, and what was wrong.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        requests = [_request(adapter, generator) for _ in range(2)]
        findings: list[Finding] = []
        cases = _cases(requests)
        for name, chunks in cases.items():
            findings += _check(adapter, name, chunks)
    return len(cases), tuple(findings)


def _request(adapter: Adapter, generator: torch.Generator) -> _Request:
    width = adapter.contract.input_embeds_hidden_size
    spans = _SPANS if adapter.media_token_id is not None else ()
    ids = torch.randint(0, adapter.vocab_size, (LENGTH,), generator=generator).tolist()
    media = {
        item: torch.randn(n, width, generator=generator).to(adapter.device, adapter.dtype)
        for item, n in enumerate(_ROWS)
    }
    rows = torch.zeros(LENGTH, width, dtype=adapter.dtype, device=adapter.device)
    text = adapter.text_rows(torch.tensor(ids, device=adapter.device))
    rows[:, : text.shape[1]] = text
    for span in spans:
        # Position by position, and not as the merge does it: from the span's own definition.
        for position in range(span.start, span.end):
            rows[position] = media[span.item][span.row + position - span.start]
    return _Request(Prompt(ids, spans), media, rows)


def _cases(requests: list[_Request]) -> dict[str, list[Chunk[_Request]]]:
    first, second = requests
    return {
        "a whole prompt": [Chunk(first, 0, LENGTH)],
        "a chunk that ends inside of a span": [Chunk(first, 0, 4)],
        "a chunk that begins and ends inside of spans": [Chunk(first, 4, 11)],
        "a chunk inside of one span": [Chunk(first, 3, 6)],
        "a chunk that begins inside of an interleaved span": [Chunk(first, 16, LENGTH)],
        "two requests, one in mid-span": [Chunk(first, 5, 17), Chunk(second, 0, LENGTH)],
    }


def _check(adapter: Adapter, name: str, chunks: list[Chunk[_Request]]) -> list[Finding]:
    contract = adapter.contract
    expected = torch.cat([chunk.request.rows[chunk.start : chunk.end] for chunk in chunks])
    n = expected.shape[0]
    into = torch.full((n + 2, expected.shape[1]), _GARBAGE).to(expected)
    merge(into, cast(Any, chunks), adapter, contract)
    findings = _segments(contract, into[:n], expected, name)
    if bool((into[n:] != _GARBAGE).any()):
        findings.append(Finding(name, COMPARED, f"rows behind the batch's {n} were written"))
    return findings


def _segments(contract: InputContract, found: Tensor, expected: Tensor, name: str) -> list[Finding]:
    findings = []
    for segment in contract.segments:
        columns = slice(segment.start, segment.end)
        gap = difference(found[:, columns], expected[:, columns], tolerance=1e-3)
        if gap is not None:
            where = f"segment {segment.name}: row {gap.first} is the first of {gap.rows} to differ"
            findings.append(Finding(name, COMPARED, where, gap.size))
    return findings
