"""Which tokens may come next, so that an answer gets the form that was asked for."""

from __future__ import annotations

import copy
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from torch import Tensor

from firstlight.core.json_schema import guarded
from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.errors import FormError, RequestError
from firstlight.sampling.form_text import find_fault, lark
from firstlight.transfer import to_device

_KEPT: Final = 16  # compiled forms
# A form's automaton grows while it is used, by a kilobyte or two a state.
_MAX_STATES: Final = 50_000
_MANY_CHARS: Final = 300
_ADDRESS: Final = re.compile(r"(\w+://)(?:[^\s/?#'\"]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
_NOTHING: Final = "no answer satisfies it"
_DUMP: Final = re.compile(r"\n\s*\d+ \| |<state>")


class Grammar:
    """One request's place in its form.

    It follows from the tokens generated so far alone; so it needs no care when a step is lost, or
    when a request is taken out and computed again.

    Args:
        matcher: at the beginning; its own.
        size: ids of the tokenizer's vocabulary.
    """

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher = matcher
        self._taken = 0
        self._bits = np.zeros((size + 31) // 32, dtype=np.int32)

    def restrict_(self, row: Tensor, output_ids: Sequence[int], stop_ids: Collection[int]) -> None:
        """Make every token impossible that the form does not allow next.

        End tokens, the model's own and ``stop_ids``, are possible where the form is complete, and
        nowhere else.

        Args:
            row: logits [V] float32, changed in place.
            output_ids: what was generated so far.

        Raises:
            RequestError: what was generated has not the form, or it got too complex to follow.
        """
        self._follow(output_ids)
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little").astype(np.bool_)
        n = min(row.shape[-1], len(allowed))
        complete = self._matcher.is_accepting()
        for token in stop_ids:
            if token < n:
                allowed[token] = complete
        row[:n].masked_fill_(to_device(torch.from_numpy(~allowed[:n]), row.device), -torch.inf)
        row[n:] = -torch.inf

    def _follow(self, output_ids: Sequence[int]) -> None:
        back = self._taken - len(output_ids)
        if back > 0:  # the engine took tokens back
            self._matcher.rollback(back)
        elif back < 0:
            self._matcher.consume_tokens(list(output_ids[self._taken :]))
        self._taken = len(output_ids)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise FormError(f"the answer's form cannot be kept: {_reason(self._matcher)}")


class Grammars:
    """The forms of one tokenizer: compiled once, kept while they are in use.

    For several threads.

    Args:
        tokenizer: a transformers tokenizer.
        end_ids: the tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = sorted(end_ids)
        self._lock = threading.Lock()
        self._vocabulary: Any = None
        self._compiled: OrderedDict[StructuredOutputs, Any] = OrderedDict()

    def start(self, form: StructuredOutputs) -> Grammar:
        """A form at its beginning, for one request.

        The first one of all costs up to a second for a large vocabulary (see :meth:`warm`), and the
        first of each form some milliseconds.

        Raises:
            RequestError: it cannot be compiled; with the place in the request.
        """
        with self._lock:
            found = self._compiled.get(form)
            if found is None:
                found = self._compile(form)
                self._compiled[form] = found
                if len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(form)
            return Grammar(found.deep_copy(), self._words().vocab_size)

    def warm(self) -> None:
        """Do now what the first form of all would have to wait for, with every other thread.

        For a tokenizer that takes no forms nothing is done.
        """
        with self._lock, suppress(RequestError):
            self._words()

    def _compile(self, form: StructuredOutputs) -> Any:
        schemas = [*form.schemas]
        if form.json is not None:
            own = form.where == "structured_outputs"
            schemas.append((f"{form.where}.json" if own else form.where, str(form.json)))
        for where, schema in schemas:
            self._check_schema(where, schema)
        matcher = LLMatcher(self._words(), lark(form, self._special), log_level=0, limits=_limits())
        if matcher.is_error():
            raise RequestError(f"{form.where} cannot be compiled: {_reason(matcher)}")
        matcher.compute_bitmask()  # the slowest of all masks is the first, and copies share it
        if matcher.is_error():  # it has no beginning, as where a schema refers to itself alone
            raise RequestError(f"{form.where} cannot be compiled: {_NOTHING}: {_reason(matcher)}")
        return matcher

    def _check_schema(self, where: str, schema: str) -> None:
        if reason := self._refused(schema):
            place = where + find_fault(schema, self._refused)
            raise RequestError(f"{place} cannot be compiled: {reason}")

    def _refused(self, schema: str) -> str:
        grammar = LLMatcher.grammar_from_json_schema(guarded(schema))
        refused, reasons = LLMatcher.validate_grammar_with_warnings(
            grammar, self._words(), limits=_limits()
        )
        return _short(reasons[0]) if refused else ""

    def _special(self, text: str) -> int | None:
        for token, added in self._tokenizer.added_tokens_decoder.items():
            if added.special and added.content == text:
                return int(token)
        return None

    def _words(self) -> Any:
        if self._vocabulary is None:
            backend = getattr(self._tokenizer, "backend_tokenizer", None)
            name = type(self._tokenizer).__name__
            if backend is None:
                raise RequestError(f"structured outputs are not to be had with {name}")
            if not self._end_ids:
                raise RequestError("structured outputs need an end token, which this model has not")
            backend = copy.deepcopy(backend)
            backend.no_padding()
            backend.no_truncation()
            self._vocabulary = LLTokenizer(backend.to_str(), eos_token=self._end_ids)
        return self._vocabulary


def _limits() -> Any:
    return LLParserLimits(max_lexer_states=_MAX_STATES)


def _reason(matcher: Any) -> str:
    return _short(str(matcher.get_error()))


def _short(text: str) -> str:
    """The message on one line, without the grammar's lines or the parser's state behind it."""
    line = " ".join(_DUMP.split(text)[0].split())
    return _ADDRESS.sub(r"\1\2", line)[:_MANY_CHARS]  # no password and no query
