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
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firstlight.engine.standins import Finder, Pattern, Standins, private_characters
from firstlight.errors import RequestError

_BAR_TOKEN: Final = re.compile(r"<\|.*\|>")


class ControlTokens:
    """The control tokens of one tokenizer and chat template.

    A token counts as control if the tokenizer calls it special, if the template mentions it, or if
    it has the form ``<|...|>``. Other added tokens (HTML tags, runs of blanks) are a spelling of
    ordinary text, and stay what the model was trained on.

    Args:
        tokenizer: a transformers tokenizer.
        template: the chat template's source, empty for none.
        placeholders: what stands for an image, a video, ...; an empty one says nothing.
    """

    def __init__(self, tokenizer: Any, template: str = "", *placeholders: str) -> None:
        self._tokenizer = tokenizer
        added = dict(tokenizer.added_tokens_decoder)
        special = {t.content for t in added.values() if t.special}
        others = {
            t.content
            for t in added.values()
            if not t.content.isspace()
            and (t.content in template or _BAR_TOKEN.fullmatch(t.content))
        }
        special |= set(filter(None, placeholders))
        control = special | others
        self._contents = {i: t.content for i, t in added.items() if t.content in control}
        # What a model wrote itself, e.g. its thoughts' borders, comes back in assistant messages;
        # templates look for it there. Special tokens are never part of an answer's text.
        self._in_answers = Pattern(special)
        self._in_other_texts = self._in_answers if others <= special else Pattern(control)
        self._borders = Finder(t.content for t in added.values())
        # Tokens that are looked for in the normalised text have further spellings, which a text may
        # hold: full-width or upper-case letters, accents, characters that are dropped.
        normaliser = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        self._respelled: frozenset[int] = frozenset()
        if normaliser is not None:
            self._respelled = frozenset(i for i in self._contents if added[i].normalized)
            self._respelled -= {tokenizer.unk_token_id}  # stands for what nobody can spell
        # Some tokens swallow the blanks before or after them.
        self._strips = {t.content: (t.lstrip, t.rstrip) for t in added.values()}

    def guard(self, messages: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], Standins]:
        """Messages with stand-ins for control tokens in all their strings, and their meanings."""
        messages = list(messages)
        standins = Standins(private_characters(messages))
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
        if not (self._respelled or standins.found_in(rendered)):
            return self._encode(rendered)
        ids: list[int] = []
        untouched = ""
        for run, is_text in self._runs(rendered):
            if is_text and (standins.found_in(run) or self._respells(run)):
                ids += self._encode(untouched)
                ids += self._encode_text(standins.restore(run), first=not ids)
                untouched = ""
            else:
                untouched += run
        return ids + self._encode(untouched)

    def _respells(self, run: str) -> bool:
        """Whether the tokenizer would find a control token in a text that holds none as written."""
        return bool(self._respelled) and not self._respelled.isdisjoint(self._encode(run))

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [int(i) for i in ids]

    def _runs(self, rendered: str) -> Iterable[tuple[str, bool]]:
        """The prompt cut at its added tokens: pieces, and whether each is ordinary text."""
        at = 0
        for start, end in self._borders.find(rendered):
            left, right = self._strips[rendered[start:end]]
            if left:
                start = at + len(rendered[at:start].rstrip())
            if right:
                end += len(rendered[end:]) - len(rendered[end:].lstrip())
            yield rendered[at:start], True
            yield rendered[start:end], False
            at = end
        yield rendered[at:], True

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
        if not any(self._contents.get(i, " ") in piece for i in ids):
            return ids
        if len(piece) == 1:
            raise RequestError(f"the model's control token {piece!r} cannot be encoded as text")
        half = len(piece) // 2
        return self._tokens(model, piece[:half]) + self._tokens(model, piece[half:])


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
