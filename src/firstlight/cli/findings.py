"""The sanitizer's findings as one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # its package imports torch, which printing does not need
    from firstlight.graphs.sanitizer import Finding

_COLUMNS = ("kind", "subject", "phase", "bucket", "operation", "where", "what")


def print_findings(findings: Sequence[Finding]) -> None:
    """Print one row a finding, or that there are none, to standard error."""
    # Where nobody looks at it, a path must not be broken at the width of a terminal.
    width = None if sys.stderr.isatty() else 240
    console = Console(stderr=True, highlight=False, markup=False, width=width)
    if not findings:
        console.print("sanitizer: no findings")
        return
    number = len(findings)
    title = f"Sanitizer: {number} finding{'' if number == 1 else 's'}"
    table = Table(*_COLUMNS, title=title, title_justify="left", show_lines=True)
    for column in table.columns:
        column.overflow = "fold"
    for f in findings:
        bucket = "eager" if f.bucket is None else str(f.bucket)
        table.add_row(f.kind.value, f.subject, f.phase.value, bucket, f.op, f.where, f.detail)
    console.print(table)


def findings_as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One object a finding, its attributes by name."""
    return [asdict(finding) for finding in findings]
