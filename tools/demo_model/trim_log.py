"""Shorten training logs to one line per N steps."""

from __future__ import annotations

import argparse
import re
from pathlib import Path


def trim(lines: list[str], every: int) -> list[str]:
    """The first line, each line whose step is a multiple of ``every``, and the last."""
    kept = []
    for number, line in enumerate(lines):
        step = re.search(r" step (\d+) ", line)
        ends = number in (0, len(lines) - 1)
        if step is not None and (ends or int(step.group(1)) % every == 0):
            kept.append(line)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "training_log.txt")
    arguments = parser.parse_args()
    lines = []
    for log in arguments.logs:
        lines += trim(log.read_text().splitlines(), arguments.every)
    arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
