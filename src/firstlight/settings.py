"""What fields of a configuration are made of: a check, a wording and a meaning in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from firstlight.errors import ConfigError

Check = Callable[[Any], bool]


def about(
    accepted: str,
    doc: str,
    check: Check,
    parse: Callable[[Any], object] | None = None,
    secret: bool = False,
) -> dict[str, object]:
    """Metadata of a field.

    Args:
        accepted: what a refusal says is accepted.
        doc: the meaning, for the documentation.
        check: whether a value is accepted.
        parse: what turns a value as typed into the one that is checked.
        secret: whether its value is never to be shown, in errors neither.
    """
    return {"accepted": accepted, "doc": doc, "check": check, "parse": parse, "secret": secret}


def setting(default: object, *facts: Any) -> Any:
    """A field with a default; ``facts`` are those of :func:`about`."""
    return field(default=default, metadata=about(*facts))


def is_bool(value: object) -> bool:
    """Whether it is True or False, and not 1 or 0."""
    return isinstance(value, bool)


def is_int(low: int, high: int | None = None) -> Check:
    """Whether it is an int, not a bool, from ``low`` to ``high``."""

    def check(value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return value >= low and (high is None or value <= high)

    return check


def is_power_of_two(high: int) -> Check:
    """Whether it is 1, 2, 4, ... up to ``high``."""
    in_range = is_int(1, high)
    return lambda value: in_range(value) and bin(value).count("1") == 1


def is_above_zero(value: object) -> bool:
    """Whether it is a finite number above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < float("inf")  # type: ignore[operator]


def or_none(check: Check) -> Check:
    """Whether it is None, or passes ``check``."""
    return lambda value: value is None or check(value)


def is_one_of(*names: str) -> Check:
    """Whether it is one of these texts."""
    return lambda value: isinstance(value, str) and value in names


def is_tuple_of(check: Check) -> Check:
    """Whether it is a tuple, possibly empty, whose items all pass ``check``."""
    return lambda value: isinstance(value, tuple) and all(map(check, value))


def is_text(value: object) -> bool:
    """Whether it is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def parse_path(value: object) -> object:
    """A text as a path, ``~`` being the user's home."""
    return Path(value).expanduser() if isinstance(value, str) and value else value


def parse_list(value: object) -> object:
    """``'a, b'`` or ``['a', 'b']`` -> ``('a', 'b')``; an empty text is an empty tuple."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",")) if value.strip() else ()
    return tuple(value) if isinstance(value, list) else value


def is_mapping_or_none(value: object) -> bool:
    """Whether it is None, or a mapping with texts as keys."""
    return value is None or (
        isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    )


def parse_json(value: object) -> object:
    """``'{"a": 1}'`` -> ``{"a": 1}``; what is no JSON is left for the check to refuse."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def check_fields(instance: Any) -> None:
    """Normalise and check every field of a frozen dataclass whose fields are settings.

    Raises:
        ConfigError: naming the field, its value and what is accepted.
    """
    for entry in fields(instance):
        given = getattr(instance, entry.name)
        parse = entry.metadata["parse"]
        value = given if parse is None else parse(given)
        object.__setattr__(instance, entry.name, value)
        if not entry.metadata["check"](value):
            accepted = entry.metadata["accepted"]
            shown = "(not shown)" if entry.metadata["secret"] else repr(given)
            raise ConfigError(f"{entry.name} = {shown}; accepted: {accepted}")


def refuse_pair(first: str, a: object, second: str, b: object, why: str) -> None:
    """Raise ConfigError for two settings that cannot go together."""
    raise ConfigError(f"{first} = {a!r} and {second} = {b!r} contradict each other: {why}")
