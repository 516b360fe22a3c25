"""Reference pages made from docstrings: every public name of a package, with its members."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example):$", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|attr|data|mod|exc):`~?([^`]+)`")
_ENTRY = re.compile(r"^([\w*][\w*, /]*): ", re.MULTILINE)
_COMMENT = re.compile(r"^    (\w+) = .*?  # (.+)$", re.MULTILINE)
_WIDE = 72
"""Columns of parameters beyond which each gets a line."""
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_LISTED = ("Args", "Attributes")
_TITLES = {"Args": "Arguments", "Raises": "Raises", "Returns": "Returns", "Yields": "Yields"}


def reference(package: str) -> str:
    """A chapter per public name of ``package``, in the order of its ``__all__``."""
    module = importlib.import_module(package)
    return "\n\n".join(entry(name, getattr(module, name)) for name in module.__all__)


def entry(name: str, thing: Any) -> str:
    """One name: heading, how it is called, its docstring, its values or members."""
    lines = [f"### {name}", "", f"```python\n{called(name, thing)}\n```", "", prose(doc_of(thing))]
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        said = _comments(thing)
        lines += ["", *(_value(m, said.get(m.name, "")) for m in thing)]
    elif isinstance(thing, type):
        members = [member(thing, n) for n in member_names(thing)]
        lines += ["", *members] if members else []
    return "\n".join(lines).strip()


def _value(member: enum.Enum, said: str) -> str:
    meaning = said or getattr(member, "meaning", "")
    return f"- `{member.name}` = `{member.value!r}`" + (f" — {meaning}" if meaning else "")


def called(name: str, thing: Any) -> str:
    """``class Name(...)`` or ``name(...) -> ...``, with annotations; an alias shows its value."""
    if isinstance(thing, type):
        if issubclass(thing, enum.Enum) or getattr(thing, "_is_protocol", False):
            return f"class {name}"
        return f"class {name}{_signature(thing)}"
    return f"{name}{_signature(thing)}" if callable(thing) else f"{name} = {thing!r}"


def member_names(cls: type) -> Iterator[str]:
    """Public methods and properties that the class defines itself or takes from its own package.

    Those of a class that is not exported count as the class's own: its user sees no difference.
    """
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("firstlight."):
            continue
        for name, value in vars(base).items():
            raw = getattr(value, "__func__", value)
            public = not name.startswith("_") or (name == "__call__" and value.__doc__)
            if public and name not in seen and _is_member(raw):
                seen.add(name)
                yield name


def member(cls: type, name: str) -> str:
    """One bullet: how the member is called and everything that its docstring says."""
    raw = inspect.getattr_static(cls, name)
    text = " ".join(_flat(doc_of(raw)))
    if isinstance(raw, property):
        return f"- `{name}` — {text}"
    call = _signature(getattr(raw, "__func__", raw), short=True)
    return f"- `{name}{call}` — {text}"


def doc_of(thing: Any) -> str:
    """The docstring; empty where it is only the one that a dataclass or an enum makes up.

    Arguments of a class whose docstring does not name them come from its ``__init__``.
    """
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    if dataclasses.is_dataclass(thing) and text.startswith(f"{getattr(thing, '__name__', '')}("):
        return ""
    if isinstance(thing, type) and "Args:" not in text and "__init__" in vars(thing):
        text += "\n\n" + inspect.cleandoc(vars(thing)["__init__"].__doc__ or "")
    return text.strip()


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a docstring: ("", the text before all headings), then heading and text."""
    parts = _SECTION.split(text)
    yield "", parts[0].strip()
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        yield heading, inspect.cleandoc("\n" + body)


def prose(text: str) -> str:
    """A docstring as markdown."""
    parts: list[str] = []
    for heading, body in sections(text):
        if not heading:
            parts.append("\n\n".join(_paragraphs(body)))
        elif heading in _LISTED:
            listed = [f"- `{names}`: {meaning}" for names, meaning in entries(body)]
            parts.append("\n".join(listed))
        elif heading == "Example":
            parts.append(f"```python\n{body}\n```")
        else:
            parts.append(f"{heading}: {' '.join(_paragraphs(body))}")
    return "\n\n".join(part for part in parts if part)


def entries(body: str) -> Iterator[tuple[str, str]]:
    """Names and meanings of an ``Args`` or ``Attributes`` section."""
    parts = _ENTRY.split(body)
    for names, meaning in zip(parts[1::2], parts[2::2], strict=True):
        yield names, " ".join(_paragraphs(meaning))


def _flat(text: str) -> Iterator[str]:
    """A docstring as sentences of one paragraph."""
    for heading, body in sections(text):
        if heading in _LISTED:
            listed = "; ".join(f"`{n}`: {m.rstrip('.')}" for n, m in entries(body))
            yield f"*{_TITLES.get(heading, heading)}:* {listed}."
        elif body:
            words = " ".join(_paragraphs(body))
            yield f"*{_TITLES.get(heading, heading)}:* {words}" if heading else words


def _paragraphs(text: str) -> list[str]:
    plain = _ROLE.sub(lambda m: f"`{m[1].rpartition('.')[2] or m[1]}`", text).replace("``", "`")
    return [" ".join(p.split()) for p in re.split(r"\n\s*\n", plain) if p.strip()]


def _is_member(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property)


def _signature(thing: Any, *, short: bool = False) -> str:
    """The parameters; ``short`` leaves out annotations and what is returned."""
    signature = inspect.signature(thing)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    shown = [_parameter(p, short=short) for p in given]
    kinds = [p.kind for p in given]
    if _KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(_KEYWORD), "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        shown.insert(sum(k is inspect.Parameter.POSITIONAL_ONLY for k in kinds), "/")
    returned = signature.return_annotation
    plain = short or isinstance(thing, type) or returned is inspect.Signature.empty
    line = ", ".join(shown)
    if not short and len(line) > _WIDE:
        line = "\n" + "".join(f"    {part},\n" for part in shown)
    return f"({line})" + ("" if plain else f" -> {returned}")


def _parameter(parameter: inspect.Parameter, *, short: bool) -> str:
    text: str = _STARS.get(parameter.kind, "") + parameter.name
    annotation, default = parameter.annotation, parameter.default
    if not short and annotation is not inspect.Parameter.empty:
        text += f": {annotation}"
    if default is inspect.Parameter.empty:
        return text
    # A default that is made anew for each call has no repr that says anything.
    value = str(default) if isinstance(default, enum.Enum) else repr(default)
    value = "..." if value.startswith("<") else value
    return text + (f"={value}" if short or ":" not in text else f" = {value}")


def _comments(cls: type) -> dict[str, str]:
    """What is said of an enum's members behind them, by name."""
    return {m[1]: m[2] for m in _COMMENT.finditer(inspect.getsource(cls))}
