"""What a fault is here: a mutation of one part, and which check says what about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PATH = re.compile(r"(?:/[^\s/:]+)*/((?:tests|src|transformers|torch)/[^\s:]+)")


class Level(StrEnum):
    """What can catch a fault, in the order in which a user meets them."""

    CONTRACT = "contract"  # a typed refusal: of a declaration, a slot, a write, a picture
    CAPTURE = "capture"  # the graph is refused; batches run eager and say why
    PROOF = "proof"  # the bucket is quarantined, or `firstlight verify` fails
    SANITIZER = "sanitizer"  # a finding of `--sanitize`


Caught = Mapping[Level, tuple[str, ...]]
"""Every message of each level that caught a fault; a level that is silent is absent."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault that users met, re-created.

    Attributes:
        id: a few words, unique.
        what: the fault in one sentence.
        seen_at: where users met it, project and number.
        examine: mutates one part, runs every level, and returns what they said.
        caught_by: exactly the levels that catch it; the words that their message must hold.
        by_chance: levels that catch it or not, by what uninitialised memory happens to hold.
    """

    id: str
    what: str
    seen_at: str
    examine: Callable[[], Caught]
    caught_by: Mapping[Level, str]
    by_chance: frozenset[Level] = frozenset()

    def certain(self, caught: Caught) -> Caught:
        """Without the levels that chance decides."""
        return {level: said for level, said in caught.items() if level not in self.by_chance}

    def shown(self, caught: Caught) -> dict[Level, str]:
        """The message of each level that names what is at fault, else its first."""
        found = {}
        for level, messages in self.certain(caught).items():
            words = self.caught_by.get(level, "")
            found[level] = next((m for m in messages if words in m), messages[0])
        return found


def collected(found: Mapping[Level, Iterable[Any]]) -> Caught:
    """Levels that said anything, with paths as they are in the repository."""
    texts = {level: tuple(plain(str(m)) for m in messages) for level, messages in found.items()}
    return {level: messages for level, messages in texts.items() if messages}


def plain(message: str) -> str:
    """One line; no path of this machine."""
    return _PATH.sub(r"\1", " ".join(message.split()))
