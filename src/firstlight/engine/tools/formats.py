"""The families' ways to write calls: which one a model has, and grammars that enforce it."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firstlight.core.json_schema import guarded, schema_text
from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.engine.tools import coder
from firstlight.engine.tools.declared import declared_only
from firstlight.engine.tools.parsers import HermesReader, LlamaReader, MistralReader
from firstlight.engine.tools.pieces import Parser

AUTO: Final = "auto"
Schema = Mapping[str, Any]
_ALPHABET: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How one family writes calls.

    Attributes:
        reader: makes a reader of one answer; given whether it may hold several calls, and the
            parameters of each function by its name.
        frame: Lark's right side for an answer of one ``call`` or, given true, of several; given
            what writes a marker.
        opening: the marker before a call, behind which nothing but a call may stand; empty: a call
            is the whole answer.
        closing: what follows that marker, in Lark; given what writes a marker.
        markers: texts around calls, of which special tokens are left in the text.
        signs: texts by which a chat template shows that it is of this family.
        call: the grammar of one function's call: given the rule's name, the function's, its
            parameters as a schema's text, what writes a marker, and the parameters' place.
        id_length: characters of a call's id that the family's templates insist on; 0: as OpenAI's.
    """

    name: str
    reader: Callable[[bool, Mapping[str, Schema]], Parser]
    frame: Callable[[Callable[[str], str], bool], str]
    opening: str
    closing: Callable[[Callable[[str], str]], str]
    markers: tuple[str, ...]
    signs: tuple[str, ...]
    call: Callable[[str, str, str, Callable[[str], str], str], str]
    id_length: int = 0

    def new_id(self) -> str:
        """A name for a call."""
        if self.id_length:
            return "".join(secrets.choice(_ALPHABET) for _ in range(self.id_length))
        return f"call_{secrets.token_hex(12)}"


def _hermes(mark: Callable[[str], str], several: bool) -> str:
    one = f'{mark("<tool_call>")} "\\n" call "\\n" {mark("</tool_call>")}'
    return f'{one} ("\\n" {one})*' if several else one


def _llama(mark: Callable[[str], str], several: bool) -> str:
    return "call"  # the family's own templates take no answer with several


def _mistral(mark: Callable[[str], str], several: bool) -> str:
    calls = 'call (", " call)*' if several else "call"
    return f'{mark("[TOOL_CALLS]")} "[" {calls} "]"'


def _mistral_named(mark: Callable[[str], str], several: bool) -> str:
    one = f"{mark('[TOOL_CALLS]')} call"
    return f"({one})+" if several else one


def _object_call(member: str) -> Callable[[str, str, str, Callable[[str], str], str], str]:
    """Calls that are an object of a name and, as ``member``, the arguments."""

    def call(rule: str, name: str, parameters: str, mark: Callable[[str], str], where: str) -> str:
        head = json.dumps(f'{{"name": {json.dumps(name)}, "{member}": ')
        return f'{rule}: {head} {rule}_arguments "}}"\n{_arguments(rule, parameters)}'

    return call


def _named_call(
    rule: str, name: str, parameters: str, mark: Callable[[str], str], where: str
) -> str:
    """A call that is its function's name and its arguments, no object that holds both."""
    head = f"{json.dumps(name)} {mark('[ARGS]')} {rule}_arguments"
    return f"{rule}: {head}\n{_arguments(rule, parameters)}"


def _arguments(rule: str, parameters: str) -> str:
    return f"{rule}_arguments: %json {guarded(parameters)}"


FORMATS: Final[Mapping[str, ToolFormat]] = {
    f.name: f
    for f in (
        ToolFormat(
            name="qwen3_coder",
            reader=coder.CoderReader,
            call=coder.call_rule,
            frame=_hermes,
            opening="<tool_call>",
            closing=lambda mark: f'"\\n" call "\\n" {mark("</tool_call>")}',
            markers=("<tool_call>", "</tool_call>"),
            signs=("<tool_call>", "<function=", "<parameter="),
        ),
        ToolFormat(
            name="mistral_args",
            reader=lambda several, _: MistralReader(several),
            call=_named_call,
            frame=_mistral_named,
            opening="[TOOL_CALLS]",
            closing=lambda mark: "call",
            markers=("[TOOL_CALLS]", "[ARGS]"),
            signs=("[TOOL_CALLS]", "[ARGS]"),
            id_length=9,
        ),
        ToolFormat(
            name="mistral",
            reader=lambda several, _: MistralReader(several),
            call=_object_call("arguments"),
            frame=_mistral,
            opening="[TOOL_CALLS]",
            closing=lambda mark: '"[" call "]"',
            markers=("[TOOL_CALLS]",),
            signs=("[TOOL_CALLS]",),
            id_length=9,
        ),
        ToolFormat(
            name="hermes",
            reader=lambda several, _: HermesReader(several),
            call=_object_call("arguments"),
            frame=_hermes,
            opening="<tool_call>",
            closing=lambda mark: f'"\\n" call "\\n" {mark("</tool_call>")}',
            markers=("<tool_call>", "</tool_call>"),
            signs=("<tool_call>", "arguments"),
        ),
        ToolFormat(
            name="llama3_json",
            reader=lambda several, _: LlamaReader(several),
            call=_object_call("parameters"),
            frame=_llama,
            opening="",
            closing=lambda mark: "call",
            markers=("<|python_tag|>",),
            signs=("parameters",),
        ),
    )
}
"""By name; a template is of the first whose signs it has."""

_OTHERS: Final = ("<function=", "<arg_key>")  # families with these are not read


def detect(template: str | None, asked: str = AUTO) -> ToolFormat | None:
    """The way of a model whose chat template is given; None if it is not known.

    Args:
        asked: the name of a format, or ``auto``.
    """
    if asked != AUTO:
        return FORMATS.get(asked)
    source = template or ""
    if "tools" not in source:
        return None
    found = next((f for f in FORMATS.values() if all(s in source for s in f.signs)), None)
    if found is None or any(s in source for s in _OTHERS if s not in found.signs):
        return None
    return found


def call_form(
    chosen: ToolFormat,
    tools: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    several: bool,
    required: bool,
    special: Mapping[str, int],
) -> StructuredOutputs:
    """The form of an answer that is a call of one of these tools, or several.

    Args:
        required: whether it must be; otherwise it may be any text, and hold calls, whose arguments
            are those of the schema if their function is ``strict``, and else any object.
        tools: each function with its place in the request.
        special: ids of those markers that are special tokens.

    Raises:
        RequestError: parameters of a tool are no schema, with the place.
    """

    def mark(text: str) -> str:
        return f"<[{special[text]}]>" if text in special else json.dumps(text)

    schemas = []
    rules = []
    for i, (where, function) in enumerate(tools):
        place = f"{where}.parameters"
        asked = (function.get("parameters") or {}) if required or function.get("strict") else {}
        parameters = schema_text({"type": "object", **declared_only(asked)}, place)
        schemas.append((place, parameters))
        rules.append(chosen.call(f"call_{i}", str(function["name"]), parameters, mark, place))
    names = " | ".join(f"call_{i}" for i in range(len(tools)))
    start = f"start: {chosen.frame(mark, several)}"
    if not required:
        start = _free(chosen, mark, special, several=several)
    grammar = "\n".join([start, f"call: {names}", *rules])
    return StructuredOutputs(grammar=grammar, schemas=tuple(schemas), where="tools")


def _free(
    chosen: ToolFormat,
    mark: Callable[[str], str],
    special: Mapping[str, int],
    *,
    several: bool,
) -> str:
    """Rules of an answer that may hold calls: whatever begins one is one."""
    if not chosen.opening:
        return "start: call | TEXT\nTEXT: /([^{ \\n](?s:.*))?/"
    calls = "*" if several else "?"
    start = f"start: (before {chosen.closing(mark)}){calls} TEXT"
    if chosen.opening in special:  # no text holds a special token
        return f"{start}\nbefore: TEXT {mark(chosen.opening)}\nTEXT: /(?s:.*)/"
    opening = re.escape(chosen.opening).replace("/", "\\/")
    return (
        f"{start}\nbefore[suffix={json.dumps(chosen.opening)}]: /(?s:.*)/\n"
        f"TEXT: /(?s:.*)/ & ~/(?s:.*){opening}(?s:.*)/"
    )
