"""Forms of answers as llguidance's grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from firstlight.core.json_schema import guarded
from firstlight.core.structured_outputs import StructuredOutputs

_MAX_TRIES: Final = 200  # to find a fault; a long search is no service to anybody
_START: Final = re.compile(r"^start(?=\s*[:\[])", re.MULTILINE)
_DEFINITIONS: Final = ("$defs", "definitions")


def lark(form: StructuredOutputs, special: Callable[[str], int | None]) -> str:
    """The grammar of a form, thoughts before it included.

    Args:
        special: the id of a text that is a special token, None for other texts.
    """
    rules = _form_rules(form)
    if form.thoughts is None:
        return rules if form.grammar is not None else f"start: form\n{rules}"
    begin, end = form.thoughts
    start = "thoughts form" if form.thinking else f"({_text(begin, special)} thoughts)? form"
    token = special(end)
    if token is None:
        thoughts = (
            f"thoughts: thought BLANKS\nthought[suffix={json.dumps(end, ensure_ascii=False)}]: "
            "/(?s:.*)/"
        )
    else:
        thoughts = f"thoughts: /(?s:.*)/ <[{token}]> BLANKS"
    return f"start: {start}\n{thoughts}\nBLANKS: /\\s{{0,8}}/\n{rules}"


def find_fault(schema: str, refused: Callable[[str], str]) -> str:
    """Where in a schema the fault is that it is refused for, e.g. ``.properties.age``.

    Args:
        refused: why a schema is, given its text; empty if it is not.
    """
    root = json.loads(schema)
    reason = refused(schema)
    shared = {key: root[key] for key in _DEFINITIONS if isinstance(root, dict) and key in root}
    path, left = "", _inner_schemas(root)
    for _ in range(_MAX_TRIES):
        name, inner = next(left, ("", None))
        if not name:
            break
        # What refers to definitions finds them beside it.
        if isinstance(inner, dict) and refused(json.dumps({**shared, **inner})) == reason:
            path, left = path + name, _inner_schemas(inner)
    return path


def _inner_schemas(schema: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in ("properties", "patternProperties", *_DEFINITIONS) and isinstance(value, Mapping):
            for name, inner in value.items():
                yield f".{key}.{name}", inner
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems") and isinstance(value, list):
            for i, inner in enumerate(value):
                yield f".{key}[{i}]", inner
        elif key in ("items", "additionalProperties"):
            yield f".{key}", value


def _form_rules(form: StructuredOutputs) -> str:
    if form.grammar is not None:
        return form.grammar if form.thoughts is None else _START.sub("form", form.grammar)
    if form.regex is not None:
        # As a JSON string in a Lark regex everything stands for itself but the slash.
        return f"form: /{_slashes(form.regex)}/"
    if form.choice:
        texts = " | ".join(json.dumps(text, ensure_ascii=False) for text in form.choice)
        return f"form: {texts}"
    schema = '{"type": "object"}' if form.json_object else str(form.json)
    return f"form: %json {guarded(schema)}"


def _slashes(regex: str) -> str:
    """A regex between Lark's slashes: those in it are escaped, unless they are already."""
    found, escaped = [], False
    for char in regex:
        found.append("\\/" if char == "/" and not escaped else char)
        escaped = char == "\\" and not escaped
    return "".join(found).replace("\n", "\\n").replace("\r", "\\r")


def _text(text: str, special: Callable[[str], int | None]) -> str:
    token = special(text)
    return json.dumps(text, ensure_ascii=False) if token is None else f"<[{token}]>"
