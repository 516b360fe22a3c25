"""The commands with their options, from the parser, and names from other servers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import typer
from tools.docs.markdown import table

from firstlight.cli.main import build_app
from firstlight.cli.option_table import engine_options, picture_options, server_options
from firstlight.cli.peer_names import ALWAYS, PEERS

Row = tuple[str, str, str]
Shared = Mapping[str, Mapping[str, Row]]
_HEADER: Final = ("", "value", "meaning")
_SHARED: Final[Mapping[str, str]] = {
    "Engine": "Engine options",
    "Pictures": "Picture options",
    "Sampling": "Sampling options",
}
"""Panels of options that several commands have, and the heading of their one table."""


def commands() -> str:
    """Every command with its arguments and options."""
    root: Any = typer.main.get_command(build_app())
    shared = {panel: _shared(root, panel) for panel in _SHARED}
    tables = [
        f"### {title}\n\n{table(_HEADER, shared[panel].values())}"
        for panel, title in _SHARED.items()
    ]
    return "\n\n".join([*_commands("firstlight", root, shared), *tables])


def _shared(root: Any, panel: str) -> dict[str, Row]:
    """The rows of a panel that several commands have, by argument."""
    whole = root.commands["chat" if panel == "Sampling" else "serve"]
    return {p.name: _parameter(p) for p in whole.params if _panel(p) == panel}


def _panel(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or ""


def _commands(name: str, command: Any, shared: Shared) -> list[str]:
    """A command, and below a group all of its own."""
    below = getattr(command, "commands", {}).items()
    inner = [text for own, sub in below for text in _commands(f"{name} {own}", sub, shared)]
    return [_command(name, command, shared), *inner]


def _command(name: str, command: Any, shared: Shared) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = [name, *(f"[{p.metavar}]" for p in arguments), "[OPTIONS]"]
    if hasattr(command, "commands"):
        usage = [name, "COMMAND", "[OPTIONS]"]
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    rows, seen = [], {panel: set[str]() for panel in _SHARED}
    for p in shown:
        row = _parameter(p)
        if shared.get(_panel(p), {}).get(p.name) == row:
            seen[_panel(p)].add(p.name)
        elif p.name != "help":
            rows.append(row)
    text = inspect.cleandoc(command.help or "").replace("\n", " ").replace("  ", "\n\n")
    options = [table(_HEADER, rows)] if rows else []
    also = [_also(panel, seen[panel], shared[panel]) for panel in _SHARED if seen[panel]]
    more = [f"And {', '.join(also)}."] if also else []
    return "\n\n".join([f"### {name}", f"`{' '.join(usage)}`", text, *options, *more])


def _also(panel: str, seen: set[str], whole: Mapping[str, Row]) -> str:
    """A link to a table of options, less those that the command has not."""
    title = _SHARED[panel]
    link = f"the [{title.lower()}](#{title.lower().replace(' ', '-')})"
    left_out = [row[0] for name, row in whole.items() if name not in seen]
    return link + (f" but {', '.join(left_out)}" if left_out else "")


def _parameter(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`", "", parameter.help
    if getattr(parameter, "is_flag", False):
        value = ""
    else:
        value = parameter.metavar or _type_name(parameter)
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}`" for name in names), value, parameter.help


def peer_names() -> str:
    """What is typed for other servers, and what it means here."""
    options = [*server_options(), *engine_options(), *picture_options()]
    ours = {option.field: f"`--{option.name}`" for option in options} | {"model": "`MODEL`"}
    rows = []
    for peer in PEERS:
        names = ", ".join(f"`{name}`" for name in peer.names)
        accepted = ", ".join(f"`{value}`" for value in peer.neutral if value != "false")
        if peer.field:
            meaning = f"{ours[peer.field]}{', ' if peer.note else ''}{peer.note}"
        elif peer.note == ALWAYS:
            meaning = f"accepted: {peer.note}"
        else:
            meaning = f"refused{f' but for {accepted}' if accepted else ''}: {peer.note}"
        rows.append((names, meaning))
    return table(("typed", "here"), rows)


def _type_name(parameter: Any) -> str:
    """``int``, ``float`` or ``text``; typer keeps the type in different places in its releases."""
    descriptor = getattr(parameter, "type_descriptor", None)
    kind = descriptor.annotation if descriptor is not None else parameter.type.name
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    numbers = {"int": "int", "integer": "int", "float": "float"}
    return numbers.get(name, "text")
