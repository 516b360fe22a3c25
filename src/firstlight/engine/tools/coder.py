"""Calls as Qwen3-Coder writes them, each argument in a tag of its own.

::

    <tool_call>
    <function=weather>
    <parameter=city>
    Rome
    </parameter>
    </function>
    </tool_call>

An argument's text is the value itself where the function's schema says it is a string, and JSON
otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from firstlight.core.json_schema import guarded, schema_text
from firstlight.engine.tools.pieces import (
    Arguments,
    CallBegin,
    Content,
    Piece,
    beginning_of,
)
from firstlight.errors import RequestError

Schema = Mapping[str, Any]
BEGIN: Final = "<tool_call>"
END: Final = "</tool_call>"
_FUNCTION: Final = "<function="
_FUNCTION_END: Final = "</function>"
_PARAMETER: Final = "<parameter="
_PARAMETER_END: Final = "</parameter>"
# What may stand beside a string's type without changing which texts are valid.
_SAYS_NOTHING: Final = {"type", "title", "description", "default", "examples"}


class CoderReader:
    """Reads an answer; see :class:`firstlight.engine.tools.parsers.CallReader` for the rules.

    An argument is passed on when it is complete.

    Args:
        several: whether there may be more than one call; if not, all behind the first is dropped.
        schemas: parameters of each function by its name.
    """

    def __init__(self, several: bool = True, schemas: Mapping[str, Schema] | None = None) -> None:
        self._several = several
        self._schemas = schemas or {}
        self._buffer = ""
        self._blanks = ""
        self._calls = 0
        self._taken = ""  # of the call that is read: its text so far, while it has no name
        self._name: str | None = None
        self._names: list[str] = []  # its arguments so far
        self._inside = self._after = self._over = False
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        """What is certain with this text."""
        self._buffer = "" if self._over else self._buffer + text
        while self._step():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> list[Piece]:
        """What is left; no more text will come."""
        if self._name is None and not self._over:
            rest, self._buffer = self._taken + self._buffer, ""
            rest = rest.lstrip() if self._after else rest
            if rest or not self._calls:
                self._content(rest, keep_blanks=not self._calls)
        elif self._name is not None:
            self._cut_short()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _step(self) -> bool:
        """One piece of the text; whether there is more to do."""
        if self._over:
            return False
        if self._after:
            return self._drop_end()
        if not self._inside:
            return self._find_call()
        return self._find_name() if self._name is None else self._find_argument()

    def _drop_end(self) -> bool:
        """The tag behind a call, blanks before it included."""
        rest = self._buffer.lstrip()
        if END.startswith(rest) and rest != END:
            return False
        self._buffer, self._after = rest.removeprefix(END), False
        return True

    def _find_call(self) -> bool:
        at = self._buffer.find(BEGIN)
        end = len(self._buffer) - beginning_of(BEGIN, self._buffer) if at < 0 else at
        self._content(self._buffer[:end])
        self._buffer = self._buffer[end:]
        if at < 0:
            return False
        self._buffer, self._inside, self._taken = self._buffer[len(BEGIN) :], True, BEGIN
        return True

    def _find_name(self) -> bool:
        rest = self._buffer.lstrip()
        if _FUNCTION.startswith(rest) and rest != _FUNCTION:
            return False
        name, found, behind = rest.removeprefix(_FUNCTION).partition(">")
        if not rest.startswith(_FUNCTION) or "\n" in name or len(name) > 200:
            taken, self._taken, self._inside = self._taken, "", False
            self._content(taken)  # what looked like a call and is none
            return True
        if not found:
            return False
        self._buffer, self._name, self._names, self._taken = behind, name.strip(), [], ""
        self._blanks = ""
        self._pieces.append(CallBegin(self._calls, self._name))
        self._calls += 1
        return True

    def _find_argument(self) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(_PARAMETER):
            head, closed, behind = rest.removeprefix(_PARAMETER).partition(">")
            value, found, behind = behind.partition(_PARAMETER_END)
            if not closed or not found:
                return False
            self._argument(head.strip(), value)
            self._buffer = behind
            return True
        for marker in (_PARAMETER, _FUNCTION_END):
            if marker.startswith(rest) and marker != rest:
                return False
        self._end_call(rest.removeprefix(_FUNCTION_END))
        return True

    def _argument(self, name: str, text: str) -> None:
        text = text.removeprefix("\n").removesuffix("\n")
        if name in self._names:
            return  # the first stands: what was sent cannot be taken back
        comma = ", " if self._names else "{"
        self._names.append(name)
        schema = self._schemas.get(self._name or "", {})
        value = _value(text, _property(schema, name))
        self._send(f"{comma}{json.dumps(name, ensure_ascii=False)}: {value}")

    def _end_call(self, rest: str) -> None:
        self._send("}" if self._names else "{}")
        self._buffer, self._name, self._inside = rest, None, False
        self._after, self._over = True, not self._several

    def _cut_short(self) -> None:
        """The text ended within a call: the argument that it ended in is dropped."""
        if not self._names:
            self._send("{")
        self._name = None

    def _send(self, text: str) -> None:
        self._pieces.append(Arguments(self._calls - 1, text))

    def _content(self, text: str, *, keep_blanks: bool = False) -> None:
        text = self._blanks + text
        kept = text if keep_blanks else text.rstrip()
        self._blanks = text[len(kept) :]
        if kept:
            self._pieces.append(Content(kept))


def call_rule(rule: str, name: str, parameters: str, mark: Callable[[str], str], where: str) -> str:
    """Grammar of one function's call, in llguidance's form of Lark.

    Args:
        parameters: its schema as JSON text, an object's.
        where: its place in the request.

    Raises:
        RequestError: a property cannot be kept to when it is written in this way.
    """
    schema = json.loads(parameters)
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    needed = set(schema.get("required", ()))
    body, rules = "", []
    for i, (key, inner) in enumerate((schema.get("properties") or {}).items()):
        own = f"{rule}_{i}"
        head = json.dumps(f"{_PARAMETER}{key}>\n", ensure_ascii=False)
        tail = json.dumps(f"\n{_PARAMETER_END}\n")
        rules += _argument_rules(own, inner, shared, head, tail, f"{where}.properties.{key}")
        body += f" {own}" if key in needed else f" {own}?"
    if "properties" not in schema and schema.get("additionalProperties") is not False:
        tail = json.dumps(f"\n{_PARAMETER_END}\n")
        body += f" {rule}_any*"
        rules += [
            f'{rule}_any: "{_PARAMETER}" /[A-Za-z0-9_.-]{{1,64}}/ ">\\n" {rule}_text',
            f"{rule}_text[suffix={tail}]: /(?s:.*)/",
        ]
    opening = json.dumps(f"{_FUNCTION}{name}>\n")
    return "\n".join([f'{rule}: {opening}{body} "{_FUNCTION_END}"', *rules])


def _argument_rules(
    rule: str, schema: Any, shared: Schema, head: str, tail: str, where: str
) -> list[str]:
    """Grammar of one argument with its tags."""
    if not _is_string(schema):
        whole = schema if isinstance(schema, bool) else {**shared, **schema}
        text = guarded(schema_text(whole, where))
        return [f"{rule}: {head} {rule}_value {tail}", f"{rule}_value: %json {text}"]
    values = _values(schema)
    if values:
        texts = " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
        return [f"{rule}: {head} ({texts}) {tail}"]
    if extra := set(schema) - _SAYS_NOTHING:
        raise RequestError(
            f"{where}: {', '.join(sorted(extra))} cannot be kept to in this model's way to write "
            "calls; accepted: strings without it, or tool_choice auto and no strict"
        )
    return [f"{rule}: {head} {rule}_value", f"{rule}_value[suffix={tail}]: /(?s:.*)/"]


def _property(schema: Schema, name: str) -> Any:
    properties = schema.get("properties")
    return properties.get(name, {}) if isinstance(properties, Mapping) else {}


def _is_string(schema: Any) -> bool:
    """Whether a value is a text, and then written without quotes."""
    if not isinstance(schema, Mapping):
        return False
    values = _values(schema)
    plain = bool(values) and "type" not in schema and all(isinstance(v, str) for v in values)
    return plain or schema.get("type") == "string"


def _values(schema: Schema) -> list[Any]:
    """The only values that a schema allows; empty if it says none."""
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list | tuple) else []


def _value(text: str, schema: Any) -> str:
    """An argument's value as JSON."""
    if not _is_string(schema):
        try:
            json.loads(text, parse_constant=_no_constant)
        except ValueError:
            pass  # a text where another value was meant: told as it is
        else:
            return text.strip()
    return json.dumps(text, ensure_ascii=False)


def _no_constant(name: str) -> None:
    raise ValueError(name)
