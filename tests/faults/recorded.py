"""What users see of each fault: ``python -m tests.faults.recorded [WORD ...]`` writes it down.

Running all faults takes a minute, and the documentation is checked often; so it is made from these
recordings, and every fault's test compares its own with what the checks say today.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

RECORDED = Path(__file__).with_name("messages.json")


@cache
def recorded() -> Mapping[str, Mapping[str, str]]:
    """By fault, by level: the message."""
    found: Mapping[str, Mapping[str, str]] = json.loads(RECORDED.read_text())
    return found


def main(words: Sequence[str]) -> None:
    """Run every fault, or those whose name holds one of ``words``, and write what was said."""
    import torch

    from tests.faults.table import FAULTS

    torch.set_num_threads(1)
    held = recorded() if RECORDED.exists() else {}
    said = {fault.id: held.get(fault.id, {}) for fault in FAULTS}
    for fault in FAULTS:
        if words and not any(word in fault.id for word in words):
            continue
        shown = fault.shown(fault.examine())
        said[fault.id] = {str(level): message for level, message in shown.items()}
        print(f"{fault.id}: {', '.join(said[fault.id]) or 'not caught'}")
    RECORDED.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
