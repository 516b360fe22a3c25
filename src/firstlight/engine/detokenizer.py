"""Token ids to text, a token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from firstlight.engine.stop import StopMatcher

_REPLACEMENT: Final = "\ufffd"
# Tokens whose text stays incomplete. Half a character spans at most three; many more are no text.
_MANY: Final = 16


class Detokenizer:
    """The text of one request's answer.

    What ``push`` returns is final: no half characters, nothing that a later token would change,
    nothing that belongs to a stop string. Without a stop, the pieces join to what the tokenizer
    gives for all ids at once.

    tokenizers' own ``DecodeStream`` has no way to hand out what is left at the end.

    Args:
        tokenizer: a transformers tokenizer.
        stop: strings that end the text.
        skip_special_tokens: leave out end tokens and the like.
    """

    def __init__(
        self, tokenizer: Any, stop: Sequence[str] = (), *, skip_special_tokens: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._matcher = StopMatcher(stop)
        self._pieces: list[str] = []
        # ids[:done] are in the text. Those before it stay as context, because a decoder may treat
        # the first token of a text in its own way (drop its blank).
        self._ids: list[int] = []
        self._done = 0

    @property
    def text(self) -> str:
        """All text returned so far."""
        return "".join(self._pieces)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._matcher.matched

    def push(self, token_id: int) -> str:
        """The text that is final with this token; often empty."""
        if self.stopped is not None:
            return ""
        self._ids.append(token_id)
        return self._emit(self._matcher.push(self._new_text()))

    def finish(self) -> str:
        """What was held back, half a character as U+FFFD; call once, after the last token."""
        if self.stopped is not None:
            return ""
        text = self._matcher.push(self._rest(self._decode(self._ids)))
        self._done = len(self._ids)
        if self.stopped is None:
            text += self._matcher.finish()
        return self._emit(text)

    def _new_text(self) -> str:
        whole = self._decode(self._ids)
        if whole.endswith(_REPLACEMENT):
            # Perhaps half a character; the next tokens tell.
            return self._give_up() if len(self._ids) - self._done >= _MANY else ""
        text = self._rest(whole)
        if text:
            self._advance(len(self._ids))
        elif self._is_skipped(self._ids[-1]):
            self._ids.pop()  # a long run of end tokens must not make every step slower
        return text

    def _is_skipped(self, token_id: int) -> bool:
        """Whether a token is special. Asked one by one: a list of all may hold thousands."""
        return bool(not self._decode([token_id]) and self._tokenizer.decode([token_id]))

    def _rest(self, whole: str) -> str:
        """The end of ``whole``, the text of all ids kept, that is not in the text yet."""
        context = self._decode(self._ids[: self._done])
        if whole.startswith(context):
            return whole[len(context) :]
        # A byte-fallback decoder reads a run of bytes all or nothing: broken bytes after a good
        # character change that character too, which has been returned already.
        return self._decode(self._ids[self._done :])

    def _give_up(self) -> str:
        """Text of ids that never became whole, up to the last border of characters among them."""
        whole = self._decode(self._ids)
        for cut in range(len(self._ids) - 1, len(self._ids) - 4, -1):
            if self._decode(self._ids[:cut]) + self._decode(self._ids[cut:]) == whole:
                text = self._rest(self._decode(self._ids[:cut]))
                self._advance(cut)
                return text
        return ""

    def _advance(self, done: int) -> None:
        """``ids[:done]`` are in the text now; of them, those of the last piece stay as context."""
        self._ids, self._done = self._ids[self._done :], done - self._done

    def _decode(self, ids: Sequence[int]) -> str:
        # Clean-up would change text across the border of two pieces.
        text = self._tokenizer.decode(
            ids, skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _emit(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text
