"""``firstlight bench media``: pictures per second, beside transformers' own processor."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from firstlight.cli.options import MODEL
from firstlight.config import BUNDLED_MODEL, EngineConfig
from firstlight.errors import ConfigError

_SMALLEST, _LARGEST = 16, 8192


def _option(name: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=text, metavar=metavar, show_default=False)


_Sizes = Annotated[
    str,
    _option("--sizes", "Sides of the square pictures in pixels; 224,512,1024,2048.", "LIST"),
]
_Formats = Annotated[
    str, _option("--formats", "Formats, by Pillow's names; jpeg,png,webp.", "LIST")
]
_Rounds = Annotated[
    int, _option("--rounds", "Rounds that count, 5; in each everything is measured in turn.")
]
_Threads = Annotated[
    int, _option("--threads", "CPU threads of one operation, here and in transformers; 1.")
]
_MediaThreads = Annotated[
    int | None,
    _option("--media-threads", "Pictures prepared at the same time, measured beside one."),
]
_Dtype = Annotated[str | None, _option("--dtype", "auto, float32, bfloat16 or float16.")]
_Json = Annotated[Path | None, _option("--json", "Write every number to this file.", "FILE")]


def media(
    model: MODEL = BUNDLED_MODEL,
    sizes: _Sizes = "224,512,1024,2048",
    formats: _Formats = "jpeg,png,webp",
    rounds: _Rounds = 5,
    threads: _Threads = 1,
    media_threads: _MediaThreads = None,
    dtype: _Dtype = None,
    json_file: _Json = None,
) -> None:
    """Time the way of pictures from bytes to rows, beside transformers' own image processor."""
    sides = _sides(sizes)
    kinds = [kind.strip().upper() for kind in formats.split(",") if kind.strip()]
    if rounds < 1 or not kinds:
        raise ConfigError("--rounds takes an int from 1, and --formats at least one format")
    config = EngineConfig.from_options(
        {"model": model, "threads": threads, "media_threads": media_threads, "dtype": dtype}
    )
    # Before minutes of measuring rather than after.
    if json_file is not None and not json_file.expanduser().parent.is_dir():
        raise ConfigError(f"--json = {str(json_file)!r}: there is no such folder")
    report = _measure(config, sides, kinds, rounds)
    if json_file is not None:
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        try:
            json_file.expanduser().write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(f"the numbers cannot be written: {error}") from error
    from firstlight.cli.tables import print_facts, print_rows

    print_facts("Pictures", report["about"])
    print_rows("one picture, medians in ms", [_times(row) for row in report["rows"]])
    print_rows("Pictures per second", [_rates(row) for row in report["rows"]])


def _measure(
    config: EngineConfig, sides: Sequence[int], kinds: Sequence[str], rounds: int
) -> dict[str, Any]:
    """Every size in every format; what is being measured is told where somebody looks."""
    from firstlight.engine.media_bench import MediaBench

    rows = []
    with MediaBench(config) as bench:
        for side in sides:
            for kind in kinds:
                if sys.stderr.isatty():
                    print(f"\r\033[K{kind} {side} x {side}", end="", file=sys.stderr, flush=True)
                rows.append(bench.measure(side, kind, rounds).describe())
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return {"about": {**bench.about(), "rounds": rounds}, "rows": rows}


def _sides(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    sides = [int(part) for part in parts if part.isascii() and part.isdecimal()]
    if not sides or len(sides) < len(parts) or not all(_SMALLEST <= s <= _LARGEST for s in sides):
        raise ConfigError(
            f"--sizes = {text!r}; accepted: ints from {_SMALLEST} to {_LARGEST}, as 224,1024"
        )
    return sides


def _times(row: Mapping[str, Any]) -> dict[str, Any]:
    """The line of a row in the table of times."""
    ms = row["ms"]
    cold, theirs = ms["cold"], ms["transformers"][row["fastest"]]
    return {
        **_case(row),
        "read": ms["read"],
        "decode": ms["decode"],
        "process": ms["process"],
        "cold": cold["median"],
        "(least to most)": _spread(cold),
        "warm": ms["warm"]["median"],
        "encode": ms["encode"],
        "transformers": theirs["median"],
        "(its least to most)": _spread(theirs),
        "ratio": row["ratio"],
        "same tensors": row["same_tensors"],
    }


def _rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """The line of a row in the table of rates."""
    rates = row["images_per_s"]
    several = "1 thread again" if rates["threads"] == 1 else f"{rates['threads']} threads"
    return {
        **_case(row),
        "1 thread": rates["one_thread"],
        several: rates["all_threads"],
        "warm": rates["warm"],
        f"transformers {row['fastest']}": rates["transformers"],
        "times as many": row["speedup"],
    }


def _case(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "size": row["size"],
        "format": row["format"],
        "file_bytes": row["file_bytes"],
        "rows": row["rows"],
    }


def _spread(sample: Mapping[str, float]) -> str:
    return f"{sample['least']:.3g} to {sample['most']:.3g}"
