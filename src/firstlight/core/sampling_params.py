"""How the next token is chosen and when generation ends."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.core.text import check_text
from firstlight.errors import RequestError

_REALS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_INTS: Final = ("top_k", "max_tokens", "min_tokens", "seed", "logprobs")
_SHOWN: Final = 80  # characters of a value that an error repeats
MAX_BIAS: Final = 100.0
MAX_BIASED: Final = 1024


def _require(ok: bool, name: str, value: object, accepted: str) -> None:
    if not ok:
        text = repr(value)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise RequestError(f"{name} = {shown}; accepted: {accepted}")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _plain_real(value: object) -> object:
    """A number of any type, e.g. NumPy's, as a float; anything else as it is, for the check."""
    if isinstance(value, int | float) or not isinstance(value, numbers.Real):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def _plain_int(value: object) -> object:
    """An integer of any type as an int; anything else, bool included, as it is."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(cast(Any, value))
    except TypeError:  # an array has the method, and no single value
        return value


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """A bias per token id, of a mapping whose keys may be ids as text (OpenAI's form), or pairs."""
    given = value.items() if isinstance(value, Mapping) else _tuple("logit_bias", value)
    found: dict[int, float] = {}
    for entry in given:
        ok = isinstance(entry, tuple) and len(entry) == 2
        _require(ok, "logit_bias", entry, "pairs of a token id and a number")
        key, bias = cast("tuple[object, object]", entry)
        digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20
        token = int(cast(str, key)) if digits else _plain_int(key)
        _require(_is_count(token), "a key of logit_bias", key, "a token id, as an int or as text")
        place, number = f"logit_bias.{token}", _plain_real(bias)
        if token in found:
            raise RequestError(f"{place} is given twice; accepted: one number for each token")
        ok = _number(number) and -MAX_BIAS <= cast(float, number) <= MAX_BIAS
        _require(ok, place, bias, f"a number from -{MAX_BIAS:g} to {MAX_BIAS:g}")
        found[cast(int, token)] = float(cast(float, number))
    _require(len(found) <= MAX_BIASED, "logit_bias", len(found), f"at most {MAX_BIASED} tokens")
    return tuple(found.items())


def _tuple(name: str, value: object) -> tuple[object, ...]:
    ok = value is None or isinstance(value, list | tuple | set | frozenset)
    _require(ok, name, value, "a list")
    return tuple(cast("Iterable[object]", value or ()))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling and stopping of one request.

    Attributes:
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this.
        min_p: keep tokens at least this fraction as likely as the most likely one.
        repetition_penalty: divides (multiplies, if negative) logits of seen tokens; 1 is off.
        presence_penalty, frequency_penalty: subtracted once, or per occurrence, from generated
            tokens' logits (OpenAI's definition).
        max_tokens: tokens to generate at most; None means up to the context's end.
        logit_bias: added to the logits of these tokens, from -100 (never) to 100: a mapping of
            token ids to numbers; afterwards pairs. Tokens that end the answer are tokens like
            others, but for ``min_tokens``, which comes first.
        min_tokens: no end token before this many.
        stop: strings that end the text; the match itself is not returned.
        stop_token_ids: further token ids that end it.
        ignore_eos: go on after the model's own end tokens.
        seed: makes this request's draws repeatable, whatever else is in the batch.
        logprobs: report this many alternatives per token (0: only the chosen one); None is off.
        structured_outputs: the form that the answer's text must have, e.g. a JSON schema.
        skip_special_tokens: leave special tokens out of the text.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    max_tokens: int | None = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    structured_outputs: StructuredOutputs | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else _tuple("stop", self.stop)
        object.__setattr__(self, "stop", stop)
        ids = tuple(map(_plain_int, _tuple("stop_token_ids", self.stop_token_ids)))
        object.__setattr__(self, "stop_token_ids", ids)
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        for names, plain in ((_REALS, _plain_real), (_INTS, _plain_int)):
            for name in names:
                object.__setattr__(self, name, plain(getattr(self, name)))
        self._check_distribution()
        self._check_limits()
        self._check_form()

    def _check_distribution(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.0, 100.0),
            ("presence_penalty", -2.0, 2.0),
            ("frequency_penalty", -2.0, 2.0),
        ):
            value = getattr(self, name)
            ok = _number(value) and low <= value <= high
            if name in ("top_p", "repetition_penalty"):
                ok = ok and value > 0
            edge = "above" if name in ("top_p", "repetition_penalty") else "from"
            _require(ok, name, value, f"a number {edge} {low:g} to {high:g}")
        _require(_is_count(self.top_k), "top_k", self.top_k, "an int from 0 (0 keeps all)")

    def _check_limits(self) -> None:
        ok = self.max_tokens is None or (_is_count(self.max_tokens) and self.max_tokens > 0)
        _require(ok, "max_tokens", self.max_tokens, "an int from 1, or None")
        _require(_is_count(self.min_tokens), "min_tokens", self.min_tokens, "an int from 0")
        ok = self.max_tokens is None or self.min_tokens <= self.max_tokens
        _require(ok, "min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        ok = self.logprobs is None or (_is_count(self.logprobs) and self.logprobs <= 20)
        _require(ok, "logprobs", self.logprobs, "an int from 0 to 20, or None")
        ok = self.seed is None or (isinstance(self.seed, int) and not isinstance(self.seed, bool))
        _require(ok, "seed", self.seed, "an int, or None")
        ok = all(isinstance(s, str) and s for s in self.stop)
        _require(ok, "stop", self.stop, "non-empty strings")
        for i, text in enumerate(self.stop):
            check_text(text, f"stop[{i}]")
        ok = all(_is_count(t) for t in self.stop_token_ids)
        _require(ok, "stop_token_ids", self.stop_token_ids, "token ids")

    def _check_form(self) -> None:
        """A form says itself where the answer may end, and where it must."""
        form = self.structured_outputs
        if form is None:
            return
        ok = isinstance(form, StructuredOutputs)
        _require(ok, "structured_outputs", form, "StructuredOutputs, or None")
        for name, neutral in (("ignore_eos", False), ("min_tokens", 0)):
            value = getattr(self, name)
            if value != neutral:
                raise RequestError(
                    f"{name} = {value!r} cannot go with {form.where}: the answer ends where its "
                    f"form is complete; accepted: {neutral!r}"
                )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """``logit_bias`` as it is kept: each token once, with what is added to its logit."""
        return cast("tuple[tuple[int, float], ...]", self.logit_bias)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
