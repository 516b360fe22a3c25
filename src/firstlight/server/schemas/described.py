"""What a field accepts, in a few words, from the JSON schema of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]


def described(schema: Schema, root: Schema, *, null: bool = True) -> str:
    """A schema in a few words, e.g. ``integer (1 to 128) or null``.

    Args:
        root: the whole schema, to which references point.
        null: whether it is said that null is accepted.
    """
    kinds = [_plain(branch) for branch in _branches(schema, root)]
    said = list(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if null and "null" in kinds:
        said.append("null")
    return " or ".join(said)


def schema_at(root: Schema, body: Any, steps: Sequence[int | str]) -> Schema:
    """The schema of what is at a place of a body.

    Args:
        root: of the body.
        steps: keys and indices that lead to the place.

    Returns:
        All branches that may stand there; empty if none may.
    """
    found: list[Schema] = [root]
    at = body
    for step in steps:
        branches = _fitting([b for schema in found for b in _branches(schema, root)], at)
        found = [inner for branch in branches for inner in _inside(branch, step)]
        at = _value(at, step)
    return {"anyOf": found}


def fields_at(root: Schema, body: Any, steps: Sequence[int | str]) -> list[str]:
    """The names of the fields that an object at a place of a body may have."""
    at = body
    for step in steps:
        at = _value(at, step)
    branches = _fitting(list(_branches(schema_at(root, body, steps), root)), at)
    names = [name for branch in branches for name in branch.get("properties", ())]
    return list(dict.fromkeys(names))


def _branches(schema: Schema, root: Schema) -> Iterator[Schema]:
    """A schema without references and unions, as one or more."""
    if "$ref" in schema:
        inner: Any = root
        for key in str(schema["$ref"]).removeprefix("#/").split("/"):
            inner = inner[key]
        yield from _branches(inner, root)
    elif union := schema.get("anyOf", schema.get("oneOf")):
        for branch in union:
            yield from _branches(branch, root)
    elif schema != {"anyOf": []}:
        yield schema


def _fitting(branches: list[Schema], value: Any) -> list[Schema]:
    """Those that a value may be meant for; of objects all, if it is meant for none of them."""
    objects = [branch for branch in branches if "properties" in branch]
    fitting = [branch for branch in objects if _may_be(branch, value)] or objects
    return [*fitting, *(branch for branch in branches if "properties" not in branch)]


def _may_be(schema: Schema, value: Any) -> bool:
    """Whether a value may be meant for this branch: what says of which kind it is agrees."""
    if not isinstance(value, Mapping):
        return True
    for name, inner in schema.get("properties", {}).items():
        accepted = [inner["const"]] if "const" in inner else inner.get("enum")
        if accepted is not None and name in value and value[name] not in accepted:
            return False
    return True


def _inside(schema: Schema, step: int | str) -> Iterator[Schema]:
    if isinstance(step, int):
        if isinstance(schema.get("items"), Mapping):
            yield schema["items"]
    elif step in schema.get("properties", {}):
        yield schema["properties"][step]
    elif isinstance(schema.get("additionalProperties"), Mapping):
        yield schema["additionalProperties"]


def _value(at: Any, step: int | str) -> Any:
    try:
        return at[step]
    except (KeyError, IndexError, TypeError):
        return None


def _plain(schema: Schema) -> str:
    """A schema that is no union."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return " or ".join(map(repr, values))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list{_bounds(schema, 'minItems', 'maxItems')} of {_items(schema)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        of = f" of {described(inner, {})}" if isinstance(inner, Mapping) and inner else ""
        return f"object{_bounds(schema, 'minProperties', 'maxProperties')}{of}"
    if kind == "string":
        like = f" like {schema['pattern']}" if "pattern" in schema else ""
        return f"string{like}{_bounds(schema, 'minLength', 'maxLength', ' characters')}"
    return f"{kind}{_range(schema)}"


def _items(schema: Schema) -> str:
    inner = schema.get("items", {})
    if "$ref" in inner or "oneOf" in inner:
        return "object"
    return "values" if "anyOf" in inner else _plain(inner)


def _range(schema: Schema) -> str:
    """Of a number."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    above = "above " if "exclusiveMinimum" in schema else ""
    if low is not None and high is not None:
        return f" ({above}{_number(low)} to {_number(high)})"
    if low is not None:
        return f" ({above or 'from '}{_number(low)})"
    return "" if high is None else f" (up to {_number(high)})"


def _bounds(schema: Schema, least: str, most: str, what: str = "") -> str:
    """Of what has a length."""
    low, high = schema.get(least), schema.get(most)
    if low is not None and high is not None:
        return f" ({low} to {high}{what})"
    if low is not None:
        return f" (at least {low}{what})"
    return "" if high is None else f" (at most {high}{what})"


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
