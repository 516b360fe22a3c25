"""What inspect prints of a report, beside what its JSON has."""

from __future__ import annotations

import pytest

from firstlight.cli.tables import print_report


def row(kind: str, bucket: int | None, n_bytes: int) -> dict[str, object]:
    phase = None if bucket is None else "prefill"
    return {"kind": kind, "phase": phase, "bucket": bucket, "bytes": n_bytes}


def test_bytes_are_printed_by_kind_and_not_again_by_bucket(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [row("scratch", None, 3072), row("scratch", 16, 1024), row("scratch", 32, 2048)]
    print_report({"model": "m", "bytes": [*rows, row("all", None, 3072)]})
    printed = capsys.readouterr().out
    assert printed.count("scratch") == 1
    assert printed.count("3.0 KiB") == 2
    assert "1.0 KiB" not in printed
