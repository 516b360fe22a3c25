"""Reads how long batches were: one number a line, or JSON lines that hold one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from firstlight.errors import ConfigError

FIELDS = ("length", "prompt_tokens", "usage.prompt_tokens")
"""Where a JSON line may hold its length, in the order in which they are tried."""


def read_lengths(source: str, field: str | None = None) -> list[int]:
    """The lengths of a file, in its order; ``-`` is standard input.

    A line is a positive int, or a JSON object with it, e.g. what ``firstlight run --json`` prints.
    Empty lines and what follows a ``#`` in a line of text are left out.

    Args:
        field: where a JSON line holds its length, with dots between nested names; by default the
            first of :data:`FIELDS` that is there.

    Raises:
        ConfigError: the file cannot be read, holds no length, or a line is something else; it is
            named with its number.
    """
    name = "standard input" if source == "-" else source
    try:
        text = sys.stdin.read() if source == "-" else Path(source).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the lengths cannot be read: {error}") from error
    fields = FIELDS if field is None else (field,)
    found = list(_lengths(text.splitlines(), name, fields))
    if not found:
        raise ConfigError(f"{name} holds no lengths")
    return found


def _lengths(lines: Iterable[str], name: str, fields: tuple[str, ...]) -> Iterator[int]:
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped.startswith("{"):
            yield _positive(_of_object(stripped, f"{name}:{number}", fields), f"{name}:{number}")
            continue
        word = stripped.partition("#")[0].strip()
        if word:
            yield _positive(int(word) if word.isdecimal() else word, f"{name}:{number}")


def _of_object(line: str, where: str, fields: tuple[str, ...]) -> object:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    for field in fields:
        value: object = entry
        for key in field.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    raise ConfigError(f"{where}: there is no field {' or '.join(fields)}; --field names another")


def _positive(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: {value!r} is no positive integer")
    return value
