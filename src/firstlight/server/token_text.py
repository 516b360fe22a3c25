"""Tokens as text and bytes, for log probabilities."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any

from firstlight.core.output import TokenLogprob

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\u2581"  # SentencePiece's mark of a blank
_LEAST = -9999.0
"""Stands for what is impossible: JSON has no infinity."""


class Place:
    """Where a token is in an answer, in characters, of which one may take several tokens.

    Args:
        chars: before it.
    """

    def __init__(self, chars: int = 0) -> None:
        self._chars = chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def move(self, raw: bytes) -> int:
        """The character that a token begins, or goes on with; then the place is behind it."""
        broken = self._decoder.getstate()[0] and raw and raw[0] & 0xC0 != 0x80
        at = self._chars + bool(broken)  # half of a character, and no other half
        self._chars += len(self._decoder.decode(raw))
        return at


class TokenText:
    """The text of single tokens of one tokenizer, special ones included."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bytes = _byte_alphabet()

    @property
    def size(self) -> int:
        """Ids of the vocabulary, added tokens included."""
        return len(self._tokenizer)

    def join(self, token_ids: Sequence[int]) -> str:
        """The text of tokens one after another, special ones included."""
        ids = list(token_ids)
        return str(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def text(self, token_id: int) -> str:
        """The token by itself; U+FFFD where it is no whole character."""
        raw = self.raw(token_id)
        return raw.decode("utf-8", "replace")

    def raw(self, token_id: int) -> bytes:
        """The token's bytes, which need not be whole characters."""
        text: str = self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
        piece = self._tokenizer.convert_ids_to_tokens(token_id)
        if not isinstance(piece, str):
            return text.encode()
        if found := _BYTE.fullmatch(piece):
            return bytes.fromhex(found[1])
        if "\ufffd" in text and all(c in self._bytes for c in piece):
            return bytes(self._bytes[c] for c in piece)
        if piece.startswith(_BLANK) and not text.startswith(" "):
            return (
                f" {text}".encode()
            )  # dropped at the beginning of a text, where it does not stand
        return text.encode()

    def chat(self, logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        """OpenAI's form for chat completions."""
        return [
            {
                **self._entry(entry.token_id, entry.logprob),
                "top_logprobs": [self._entry(*rival) for rival in entry.top],
            }
            for entry in logprobs
        ]

    def completion(self, logprobs: Sequence[TokenLogprob], place: Place) -> dict[str, Any]:
        """OpenAI's form for text completions.

        Args:
            place: in the answer, before these tokens; moved behind them.
        """
        texts = [self.text(entry.token_id) for entry in logprobs]
        offsets = [place.move(self.raw(entry.token_id)) for entry in logprobs]
        return {
            "tokens": texts,
            "token_logprobs": [_finite(entry.logprob) for entry in logprobs],
            "top_logprobs": [
                {self._name(token): _finite(value) for token, value in entry.top}
                for entry in logprobs
            ],
            "text_offset": offsets,
        }

    def _name(self, token_id: int) -> str:
        """The text, or ``bytes:\\xe2\\x80`` where it is no whole character, as no two may be
        called alike."""
        raw = self.raw(token_id)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self.raw(token_id)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": _finite(logprob), "bytes": list(raw)}


def _finite(value: float) -> float:
    return value if value > _LEAST else _LEAST


def _byte_alphabet() -> dict[str, int]:
    """Byte-level tokenizers' characters, as GPT-2 defined them: printable bytes stand for
    themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
