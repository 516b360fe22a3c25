"""Where options come from: the command line before the environment, that before a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from firstlight.cli.config_file import Entry, read_config
from firstlight.errors import ConfigError

_NOT_OUTSIDE: Final = frozenset({"config_file", "help", "socket_fd"})
_OWN_VARIABLES: Final = frozenset({"config", "cache", "api-key", "debug"})
_PREFIX: Final = "FIRSTLIGHT_"
_TRUE: Final = frozenset({"1", "true", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"0", "false", "no", "off", "f", "n"})


class Rank(IntEnum):
    """Which source goes before which; the lowest wins."""

    TYPED = 0
    ENVIRONMENT = 1
    FILE = 2


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: its rank, and for people the variable, or file and line."""

    rank: Rank
    where: str


@dataclass(slots=True)
class Layers:
    """What environment and file give the options of one command.

    Attributes:
        values: by the name of the argument.
        origins: of these values.
        warnings: variables that look like options and are none.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_layers(command: Any, root: Any, path: str | None, variables: Mapping[str, str]) -> Layers:
    """The values of a command's options that are not typed.

    Args:
        command: the command; root: the group it is in, whose other commands' options a file and
            the environment may hold as well.
        path: the file of ``--config``; None looks for ``FIRSTLIGHT_CONFIG``.
        variables: variables named ``FIRSTLIGHT_...``.

    Raises:
        ConfigError: the file cannot be read, or a key of it names no option of any command, with
            its line and the nearest name.
    """
    layers = Layers()
    own = dict(_names(command))
    elsewhere = {name for other in root.commands.values() for name, _ in _names(other)}
    path = path or variables.get(f"{_PREFIX}CONFIG")
    entries = [] if path is None else read_config(Path(path))
    for entry in entries:
        name = _normal(entry.key)
        if name not in own and name not in elsewhere:
            raise ConfigError(f"{entry.where}: there is no option {entry.key!r}{_hint(name, own)}")
    _place(layers, own, entries, Rank.FILE)
    named = [
        Entry(_normal(name.removeprefix(_PREFIX)), value, name) for name, value in variables.items()
    ]
    linked = [e for e in named if e.key == "port" and str(e.value).startswith("tcp://")]
    layers.warnings += [
        f"{entry.where} is left aside: {entry.value!r:.60} is what Kubernetes sets for a service "
        "named firstlight (enableServiceLinks: false ends that)"
        for entry in linked
        if "port" in own
    ]
    named = [entry for entry in named if entry not in linked]
    _place(layers, own, named, Rank.ENVIRONMENT)
    for entry in named:
        if entry.key in own or entry.key in elsewhere or entry.key in _OWN_VARIABLES:
            continue
        close = get_close_matches(entry.key, own, n=1, cutoff=0.8)
        if close:
            nearest = f"{_PREFIX}{close[0].upper().replace('-', '_')}"
            layers.warnings.append(f"{entry.where} is no option; did you mean {nearest}?")
    return layers


def _names(command: Any) -> Iterator[tuple[str, tuple[Any, bool]]]:
    """Every long name of a command's options -> the option, and whether the name negates it."""
    for parameter in command.params:
        if parameter.name in _NOT_OUTSIDE:
            continue
        if parameter.param_type_name == "argument":
            if parameter.name == "model":
                yield "model", (parameter, False)
            continue
        for negates, typed in ((False, parameter.opts), (True, parameter.secondary_opts)):
            for name in typed:
                if name.startswith("--"):
                    yield name.removeprefix("--"), (parameter, negates)
        # The name of a setting is understood as well, as in the Python API.
        setting = _normal(parameter.name)
        if not parameter.name.startswith("peer") and setting not in _OWN_VARIABLES:
            yield setting, (parameter, False)


def says_yes(value: str | None) -> bool:
    """Whether a variable turns a flag on."""
    return (value or "").lower() in _TRUE


def _place(
    layers: Layers, own: Mapping[str, tuple[Any, bool]], entries: Iterable[Entry], rank: Rank
) -> None:
    for entry in entries:
        found = own.get(_normal(entry.key))
        if found is None or entry.value is None:
            continue
        parameter, negates = found
        value = _fit(entry, parameter, rank)
        if negates:
            value = _negated(value, entry)
        before = layers.origins.get(parameter.name)
        if before is not None and before.rank is rank and layers.values[parameter.name] != value:
            raise ConfigError(f"{before.where} and {entry.where} give one option two values")
        layers.values[parameter.name] = value
        layers.origins[parameter.name] = Origin(rank, entry.where)


def _fit(entry: Entry, parameter: Any, rank: Rank) -> str | list[str]:
    """A value as the option takes it: several texts where it may be repeated, else one."""
    value = entry.value
    assert value is not None
    if getattr(parameter, "multiple", False):
        if isinstance(value, list):
            return value
        # A file has lists of its own, so that a text may hold commas there.
        return _several(value) if rank is Rank.ENVIRONMENT else [value]
    flag = getattr(parameter, "is_flag", False)
    if flag and (isinstance(value, list) or value.lower() not in _TRUE | _FALSE):
        raise ConfigError(f"{entry.where}: {value!r:.60} is neither true nor false")
    if isinstance(value, list):
        return ",".join(value)
    return value


def _several(value: str) -> list[str]:
    """``'a,b'`` or ``'["a", "b"]'``."""
    if value.lstrip().startswith("["):
        try:
            return [str(part) for part in json.loads(value)]
        except ValueError:
            pass
    return [part.strip() for part in value.split(",") if part.strip()]


def _negated(value: str | list[str], entry: Entry) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{entry.where}: a list is neither true nor false")
    return "false" if value.lower() in _TRUE else "true"


def _normal(name: str) -> str:
    return name.strip().lstrip("-").lower().replace("_", "-")


def _hint(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "; see --help for those there are"
