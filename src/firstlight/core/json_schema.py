"""JSON schemas as requests bring them, checked, and simpler where that says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from firstlight.core.text import check_text
from firstlight.errors import RequestError

Schema = dict[str, Any] | bool
_VALUES: Final = ("const", "default", "examples")  # what they hold is no schema
# A model that is unsure may write blanks without end: they are bounded, and indentation has room.
_OPTIONS: Final = {"whitespace_pattern": r"\n?[ ]{0,8}", "lenient": False}
_MAX_CHARS: Final = 1_000_000
_MAX_NUMBER: Final = 2**53
_MAX_BRANCHES: Final = 64  # each is compared with each
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string"})


def schema_text(schema: object, where: str) -> str:
    """A schema as JSON text, whatever form it came in.

    Its ``oneOf`` becomes ``anyOf`` wherever no value can match two of its branches: those are all
    that generation can keep to, and discriminated unions are of that kind.

    Args:
        schema: a mapping, true or false, or JSON text of one of these.
        where: its place in the request, for messages.

    Raises:
        RequestError: it is nothing of the kind.
    """
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(value, allow_nan=False)
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"{where} is no JSON schema: {error}") from error
    if len(text) > _MAX_CHARS:
        raise RequestError(f"{where} has {len(text)} characters; at most {_MAX_CHARS}")
    if not isinstance(value, dict | bool):
        raise RequestError(f"{where} must be a JSON schema, an object, not {text[:80]}")
    _check_numbers(value, where)
    return check_text(json.dumps(_simpler(value, value), ensure_ascii=False), where)


def _check_numbers(node: Any, where: str) -> None:
    """Raise for an integer that is not exact in every reader of JSON.

    The compiler of grammars may end the process at the edge of what 64 bits hold.
    """
    if isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            _check_numbers(inner, where)
    elif isinstance(node, int | float) and not -_MAX_NUMBER <= node <= _MAX_NUMBER:
        raise RequestError(f"{where} holds the number {str(node)[:40]}; at most 2**53 either way")


def guarded(schema: str) -> str:
    """A schema, given and returned as text, with our own options for the grammar made of it."""
    value: Any = json.loads(schema)
    if value is True:
        value = {}
    if isinstance(value, dict):
        # Over what the request says there: it could ask to be lenient.
        value = {**value, "x-guidance": _OPTIONS}
    return json.dumps(value, ensure_ascii=False)


def _simpler(node: Any, root: Schema) -> Any:
    if isinstance(node, list):
        return [_simpler(item, root) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: value
        if key in _VALUES or (key == "enum" and isinstance(value, list))
        else _simpler(value, root)
        for key, value in node.items()
    }
    branches = kept.get("oneOf")
    if isinstance(branches, list) and "anyOf" not in kept and _exclusive(branches, root):
        kept["anyOf"] = kept.pop("oneOf")
    return kept


def _exclusive(branches: list[Any], root: Schema) -> bool:
    """Whether no value matches two branches, as far as their types and constants tell."""
    found = [_resolved(branch, root) for branch in branches]
    return len(found) <= _MAX_BRANCHES and all(_apart(a, b) for a, b in combinations(found, 2))


def _resolved(branch: Any, root: Schema) -> Mapping[str, Any]:
    """What a branch says, or what it refers to says; nothing if that is not to be found."""
    if not isinstance(branch, dict):
        return {}
    reference = branch.get("$ref")
    if not isinstance(reference, str):
        return branch
    at: Any = root
    for step in reference.removeprefix("#/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(at, dict) or step not in at:
            return {}
        at = at[step]
    return at if isinstance(at, dict) else {}


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if not _kinds(a) & _kinds(b):
        return True
    if _differ(a, b):
        return True
    if _kinds(a) != {"object"} or _kinds(b) != {"object"}:
        return False
    shared = _required(a) & _required(b)
    return any(_differ(_property(a, name), _property(b, name)) for name in shared)


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list):
        return _TYPES
    return frozenset("number" if name == "integer" else str(name) for name in names)


def _required(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return {n for n in names if isinstance(n, str)} if isinstance(names, list) else set()


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties = schema.get("properties")
    value = properties.get(name) if isinstance(properties, dict) else None
    return value if isinstance(value, dict) else {}


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether both allow only certain strings, and none in common."""
    first, second = _strings(a), _strings(b)
    return first is not None and second is not None and not first & second


def _strings(schema: Mapping[str, Any]) -> set[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        return None  # of numbers, 1 and 1.0 are one value in two spellings
    return set(values)
