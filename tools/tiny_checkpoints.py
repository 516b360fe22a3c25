"""Build tiny random fp32 checkpoints: ``python -m tools.tiny_checkpoints OUT [FAMILY...]``.

Each is a complete folder in Hugging Face layout (configuration, safetensors, tokenizer with the
family's special tokens, chat template, image processor), seeded, and written in well under two
seconds. The tests use them as the models on which firstlight and transformers must agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.tiny.build import build_checkpoint
from tools.tiny.families import (
    FAMILIES,
    MORE_TEXT_FAMILIES,
    PREFIX_LM_FAMILIES,
    TEXT_FAMILIES,
    VISION_FAMILIES,
)

__all__ = [
    "FAMILIES",
    "MORE_TEXT_FAMILIES",
    "PREFIX_LM_FAMILIES",
    "TEXT_FAMILIES",
    "VISION_FAMILIES",
    "build_checkpoint",
    "main",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the named families (default: all) below OUT; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder that gets one folder per family")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--seed", type=int, help="instead of the family's own seed")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.families) - set(FAMILIES))
    if unknown:
        print(f"unknown family {unknown[0]!r}; known: {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    for name in options.families or FAMILIES:
        start = time.perf_counter()
        folder = build_checkpoint(name, options.out / name, seed=options.seed)
        print(f"{name:16} {time.perf_counter() - start:5.2f} s  {folder}")
    return 0


if __name__ == "__main__":
    from transformers.utils import logging

    logging.disable_progress_bar()
    sys.exit(main())
