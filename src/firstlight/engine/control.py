"""Keeps control tokens out of what users type.

A chat template writes control tokens (turn borders, image placeholders) as ordinary characters, and
a tokenizer cannot tell them from the same characters in a user's text. So before the template is
rendered, every control token that occurs in a text is replaced by a stand-in, one character of
Unicode's private-use planes that no text of the request holds. What the template writes itself is
the only source of control tokens then; the stand-ins become ordinary text again when the rendered
prompt is encoded.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from firstlight.errors import RequestError

_PRIVATE: Final = range(0xF0000, 0x10FFFE)
_BAR_TOKEN: Final = re.compile(r"<\|.*\|>")


class ControlTokens:
    """The control tokens of one tokenizer and chat template.

    A token counts as control if the tokenizer calls it special, if the template mentions it, or if
    it has the form ``<|...|>``. Other added tokens (HTML tags, runs of blanks) are a spelling of
    ordinary text, and stay what the model was trained on.

    Args:
        tokenizer: a transformers tokenizer.
        template: the chat template's source, empty for none.
        placeholder: what stands for an image, empty for none.
    """

    def __init__(self, tokenizer: Any, template: str = "", placeholder: str = "") -> None:
        self._tokenizer = tokenizer
        self._added = dict(tokenizer.added_tokens_decoder)
        special = {t.content for t in self._added.values() if t.special}
        others = {
            t.content
            for t in self._added.values()
            if not t.content.isspace()
            and (t.content in template or _BAR_TOKEN.fullmatch(t.content))
        }
        if placeholder:
            special.add(placeholder)
        self._ids = {i for i, t in self._added.items() if t.content in special | others}
        # What a model wrote itself, e.g. its thoughts' borders, comes back in assistant messages;
        # templates look for it there. Special tokens are never part of an answer's text.
        self._in_answers = Pattern(special)
        self._in_other_texts = Pattern(special | others)

    def guard(self, messages: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], Standins]:
        """Messages with stand-ins for control tokens in all their strings, and their meanings."""
        messages = list(messages)
        standins = Standins(_characters(messages))
        guarded = []
        for message in messages:
            role = message["role"]  # one of a fixed set, no text
            pattern = self._in_answers if role == "assistant" else self._in_other_texts
            guarded.append({**standins.replace(message, pattern), "role": role})
        return guarded, standins

    def encode(self, rendered: str, standins: Standins) -> list[int]:
        """Token ids of a rendered prompt; the text behind stand-ins is encoded as text.

        Without a stand-in this is what the tokenizer itself gives for the whole string. With one,
        only the runs of ordinary text around it are encoded on their own, between the control
        tokens that border them; everything else is left to the tokenizer.

        Raises:
            RequestError: the tokenizer has no way to spell a control token as text.
        """
        if not standins.found_in(rendered):
            return self._encode(rendered)
        ids: list[int] = []
        untouched = ""
        for run, is_text in self._runs(rendered):
            if is_text and standins.found_in(run):
                ids += self._encode(untouched)
                ids += self._encode_text(standins.restore(run), first=not ids)
                untouched = ""
            else:
                untouched += run
        return ids + self._encode(untouched)

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [int(i) for i in ids]

    def _runs(self, rendered: str) -> Iterable[tuple[str, bool]]:
        """The prompt cut at its added tokens: pieces, and whether each is ordinary text."""
        borders = _alternatives(
            {t.content: (t.lstrip, t.rstrip) for t in self._added.values() if t.content}
        )
        start = 0
        for match in borders.finditer(rendered):
            yield rendered[start : match.start()], True
            yield match[0], False
            start = match.end()
        yield rendered[start:], True

    def _encode_text(self, text: str, *, first: bool) -> list[int]:
        """Encode without added tokens: the tokenizer's own stages, one by one."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise RequestError(
                "the text holds a control token of the model, which this tokenizer "
                f"({type(self._tokenizer).__name__}) cannot encode as ordinary text"
            )
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        pieces = [text]
        if backend.pre_tokenizer is not None:
            splitter = backend.pre_tokenizer if first else _inside(backend.pre_tokenizer)
            pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)]
        return [i for piece in pieces for i in self._tokens(backend.model, piece)]

    def _tokens(self, model: Any, piece: str) -> list[int]:
        """Ids of one pre-token; spelled in halves should it be a control token as a whole."""
        ids = [token.id for token in model.tokenize(piece)]
        if self._ids.isdisjoint(ids):
            return ids
        if len(piece) == 1:
            raise RequestError(f"the model's control token {piece!r} cannot be encoded as text")
        half = len(piece) // 2
        return self._tokens(model, piece[:half]) + self._tokens(model, piece[half:])


class Pattern:
    """Finds control tokens in a text, and at its ends the pieces that a neighbour may complete."""

    def __init__(self, tokens: set[str]) -> None:
        self._whole = _alternatives(tokens)
        self._heads = {t[:k] for t in tokens for k in range(1, len(t))}
        self._tails = {t[-k:] for t in tokens for k in range(1, len(t))}
        self._longest = max(map(len, tokens), default=0)

    def replace(self, text: str, standin: Callable[[str], str]) -> str:
        """``text`` with ``standin(...)`` for each control token in it.

        A template may put two texts side by side, so that the end of one and the start of the next
        make a token. One character of such an end or start gets a stand-in too.
        """
        text = self._whole.sub(lambda match: standin(match[0]), text)
        size = len(text)
        lengths = range(1, min(self._longest, size + 1))
        places = {size - k for k in lengths if text[size - k :] in self._heads}
        places |= {k - 1 for k in lengths if text[:k] in self._tails}
        if not places:
            return text
        return "".join(standin(c) if i in places else c for i, c in enumerate(text))


class Standins:
    """The private-use characters of one request and the characters they stand for."""

    def __init__(self, taken: set[str]) -> None:
        self._free = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._characters: dict[str, str] = {}
        self._texts: dict[int, str] = {}

    def replace(self, value: Any, pattern: Pattern) -> Any:
        """``value`` with stand-ins in all its strings, keys of mappings included."""
        if isinstance(value, str):
            return pattern.replace(value, self._standin)
        if isinstance(value, Mapping):
            return {self.replace(k, pattern): self.replace(v, pattern) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.replace(item, pattern) for item in value]
        return value

    def _standin(self, text: str) -> str:
        if text not in self._characters:
            self._characters[text] = character = next(self._free)
            self._texts[ord(character)] = text
        return self._characters[text]

    def found_in(self, text: str) -> bool:
        """Whether any stand-in occurs in ``text``."""
        return any(character in text for character in self._characters.values())

    def restore(self, text: str) -> str:
        """``text`` with the user's own characters again."""
        return text.translate(self._texts)


def _characters(value: Any) -> set[str]:
    """Private-use characters in all strings of a value."""
    if isinstance(value, str):
        return set() if value.isascii() else {c for c in value if ord(c) in _PRIVATE}
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        return set().union(*map(_characters, value))
    return set()


def _alternatives(tokens: Iterable[str] | Mapping[str, tuple[bool, bool]]) -> re.Pattern[str]:
    """Matches any of the tokens, the longest first; blanks that a token swallows are part of it."""
    sides = tokens if isinstance(tokens, Mapping) else dict.fromkeys(tokens, (False, False))
    longest_first = sorted(sides, key=len, reverse=True)
    blank = ("", r"\s*")
    choices = [blank[sides[t][0]] + re.escape(t) + blank[sides[t][1]] for t in longest_first]
    return re.compile("|".join(choices) or r"(?!)")


def _inside(pre_tokenizer: Any) -> Any:
    """The pre-tokenizer as it acts inside a text, where no blank is put before the first word."""
    state = json.loads(pre_tokenizer.__getstate__())
    inside = _never_prepend(state)
    if inside == state:
        return pre_tokenizer
    changed = copy.deepcopy(pre_tokenizer)  # the tokenizer's own is shared by all threads
    changed.__setstate__(json.dumps(inside).encode())
    return changed


def _never_prepend(state: Any) -> Any:
    if isinstance(state, list):
        return [_never_prepend(item) for item in state]
    if not isinstance(state, dict):
        return state
    changed = {key: _never_prepend(value) for key, value in state.items()}
    if changed.get("prepend_scheme") == "first":
        changed["prepend_scheme"] = "never"
    return changed
