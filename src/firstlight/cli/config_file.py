"""Reads a file of options: YAML, TOML or JSON, one key an option."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from firstlight.errors import ConfigError

_KEY: Final = r"^[\s{{\[]*[\"']?{}[\"']?\s*[:=.\]]"
"""A key where a line begins, ``a.b`` and ``[a]`` of TOML included."""
SUFFIXES: Final = (".yaml", ".yml", ".toml", ".json")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a file.

    Attributes:
        value: text as it would be typed, several texts, or None for a key without a value.
        where: ``file:line``.
    """

    key: str
    value: str | list[str] | None
    where: str


def read_config(path: Path) -> list[Entry]:
    """The entries of a file, in its order.

    Raises:
        ConfigError: it cannot be read, is of another kind, or is no mapping of options to values.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--config = {str(path)!r}; accepted: a file {', '.join(SUFFIXES)}")
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} cannot be read: {error}") from error
    if path.suffix.lower() in (".yaml", ".yml"):
        return _read_yaml(text, path)
    try:
        if path.suffix.lower() == ".toml":
            found: Any = tomllib.loads(text)
        else:
            found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise ConfigError(f"--config: {path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--config: {path} holds no object of options and values")
    return [
        Entry(key, _typed(value, where), where)
        for key, value in found.items()
        if (where := _where(path, text, key))
    ]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


def _where(path: Path, text: str, key: str) -> str:
    """``file:line`` of a key at the beginning of a line, or the file alone."""
    match = re.search(_KEY.format(re.escape(key)), text, re.MULTILINE)
    if match is None:
        return str(path)
    return f"{path}:{text.count(chr(10), 0, match.end()) + 1}"


def _typed(value: Any, where: str) -> str | list[str] | None:
    """A value as it would be typed."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    if isinstance(value, list):
        return [_text(part, where) for part in value if part is not None]
    return None if value is None else _text(value, where)


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        raise ConfigError(f"{where}: a list may hold texts and numbers, not further lists")
    return str(value)


def _read_yaml(text: str, path: Path) -> list[Entry]:
    """The entries of a YAML file; scalars stay as they are written, so that ``off`` is a text."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"--config: {path}: {' '.join(str(error).split())}") from error
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"--config: {path} holds no mapping of options to values")
    entries: list[Entry] = []
    for key, value in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if any(entry.key == key.value for entry in entries):
            raise ConfigError(f"{where}: the key {key.value!r} stands there twice")
        entries.append(Entry(str(key.value), _of_node(value, where), where))
    return entries


def _of_node(node: Any, where: str) -> str | list[str] | None:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)
    if isinstance(node, yaml.SequenceNode):
        parts = [_of_node(part, where) for part in node.value]
        if not all(isinstance(part, str) for part in parts):
            raise ConfigError(f"{where}: a list may hold texts and numbers, not further lists")
        return [str(part) for part in parts]
    loader = yaml.SafeLoader("")
    try:
        return json.dumps(loader.construct_document(node), default=str)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
