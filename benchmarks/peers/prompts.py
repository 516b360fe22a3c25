"""Prompts of an exact length, the same as text and as ids, and pictures; new ones each round."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw

from benchmarks.peers.judged import Call
from benchmarks.peers.workers.loop import Request

_TEXT: Final = (
    "the red circle is left of a blue square and two green stars stand on top while rain falls "
    "over old houses near the river where people walk with their dogs in the evening light"
)
_SIDE: Final = 448
_PLACEHOLDER: Final = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass(frozen=True, slots=True)
class PromptMaker:
    """Requests of one model.

    Attributes:
        tokenizer: transformers' of the checkpoint.
        folder: where pictures are written.
        media: what stands before a question for its picture.
    """

    tokenizer: Any
    folder: Path
    media: str = _PLACEHOLDER

    def requests(self, call: Call, turn: str, round_number: int) -> list[Request]:
        """Of a call in a round; what differs between rounds differs from the first token on."""
        found = []
        for i in range(call.requests):
            seed = f"{turn}:{round_number}:{call.question}:{i}"
            text = self.text(call.tokens, seed)
            images = []
            if call.picture:
                text = self.media + text
                images = [str(self.picture(f"{turn}:{round_number}"))]
            found.append(Request(text, self._ids(text), images))
        return found

    def text(self, tokens: int, seed: str) -> str:
        """Words that make exactly ``tokens`` tokens, and the same ones when read back.

        Raises:
            ValueError: the tokenizer has no such text within a hundred tries.
        """
        rng = random.Random(seed)
        for _ in range(100):
            words = " ".join(rng.choice(_TEXT.split()) for _ in range(tokens))
            text = self.tokenizer.decode(self._ids(words)[:tokens])
            if len(self._ids(text)) == tokens:
                return str(text)
        raise ValueError(f"no text of exactly {tokens} tokens was found")

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def picture(self, seed: str) -> Path:
        """A PNG of 448 x 448 with coloured shapes, written once."""
        rng = random.Random(seed)
        path = self.folder / f"{seed.replace(':', '-')}.png"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _draw(rng).save(path)
        return path


def _draw(rng: random.Random) -> Image.Image:
    def colour() -> tuple[int, int, int]:
        return rng.randrange(256), rng.randrange(256), rng.randrange(256)

    image = Image.new("RGB", (_SIDE, _SIDE), colour())
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, size = rng.randrange(_SIDE), rng.randrange(_SIDE), rng.randrange(20, 160)
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x, y, x + size, y + size), fill=colour())
    return image
