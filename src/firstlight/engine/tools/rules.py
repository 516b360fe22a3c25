"""What a request says of calls: which functions there are, and whether one has to be called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firstlight.engine.refusal import wrong
from firstlight.errors import RequestError

CHOICES: Final = ("none", "auto", "required")
MAX_TOOLS: Final = 128
NAME: Final = r"^[a-zA-Z0-9_.-]{1,64}$"
_NAME: Final = re.compile(NAME)
_FIELDS: Final = ("name", "description", "parameters", "strict")


@dataclass(frozen=True, slots=True)
class CallRules:
    """Functions that an answer may call.

    Attributes:
        tools: all that the request brings, in OpenAI's form, ``{"type": "function", "function":
            {"name", "description", "parameters", "strict"}}``; checked.
        choice: ``none``, ``auto`` or ``required``.
        name: of the one function that must be called; empty for any.
        several: an answer may hold more than one call.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = "auto"
    name: str = ""
    several: bool = True

    @property
    def may_call(self) -> bool:
        """Whether the answer may hold calls."""
        return bool(self.tools) and self.choice != "none"

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.choice == "required" or bool(self.name)

    def callable(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The functions that may be called, each with its place in the request."""
        if not self.may_call:
            return []
        functions = [(f"tools[{i}].function", t["function"]) for i, t in enumerate(self.tools)]
        return [(place, f) for place, f in functions if self.name in ("", f["name"])]

    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """The parameters of each function by its name; empty where it says none."""
        return {str(f["name"]): f.get("parameters") or {} for _, f in self.callable()}

    def told(self) -> list[dict[str, Any]]:
        """The tools as chat templates take them; none if none may be called."""
        return [_told(tool["function"]) for tool in self.tools] if self.may_call else []


def call_rules(tools: object, choice: object = None, several: object = True) -> CallRules:
    """Rules from values of the types that OpenAI's API has, which may be wrong in every way.

    Args:
        tools: a list of functions; None for none.
        choice: ``none``, ``auto``, ``required``, or ``{"type": "function", "function": {"name":
            ...}}``; None for ``auto``.
        several: ``parallel_tool_calls``.

    Raises:
        RequestError: with the place, the value and what is accepted.
    """
    if tools is not None and (not isinstance(tools, list | tuple) or len(tools) > MAX_TOOLS):
        raise wrong("tools", tools, f"a list of at most {MAX_TOOLS} functions")
    if not isinstance(several, bool):
        raise wrong("parallel_tool_calls", several, "true or false")
    checked = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ())]
    names = [tool["function"]["name"] for tool in checked]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise wrong(f"tools[{i}].function.name", name, "a name that no other tool has")
    name = _chosen(choice)
    if name and name not in names:
        raise wrong(
            "tool_choice", name, f"one of the tools: {', '.join(names) or 'there are none'}"
        )
    word = str(choice) if isinstance(choice, str) else "auto"
    if word == "required" and not names:
        raise wrong("tool_choice", word, "none or auto, as there are no tools")
    return CallRules(tuple(checked), word, name, several)


def _chosen(choice: object) -> str:
    """The name of the function that is to be called; empty for none in particular."""
    if choice is None or choice in CHOICES:
        return ""
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or choice.get("type") != "function":  # type: ignore[attr-defined]
        accepted = "none, auto, required, or {'type': 'function', 'function': {'name': ...}}"
        raise wrong("tool_choice", choice, accepted)
    return name


def _tool(tool: object, where: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise wrong(where, tool, "a mapping with 'type' and 'function'")
    if tool.get("type") != "function":
        raise wrong(f"{where}.type", tool.get("type"), "'function'")
    function, place = tool.get("function"), f"{where}.function"
    if not isinstance(function, Mapping):
        raise wrong(place, function, "a mapping with 'name'")
    for name in function:
        if name not in _FIELDS:
            raise RequestError(f"{place}.{name}: no such field; accepted: {', '.join(_FIELDS)}")
    if not isinstance(function.get("name"), str) or not _NAME.match(function["name"]):
        accepted = "1 to 64 letters, digits, dots, dashes and underscores"
        raise wrong(f"{place}.name", function.get("name"), accepted)
    for name, kind, accepted in (
        ("description", str, "a string"),
        ("parameters", Mapping, "a JSON schema, an object"),
        ("strict", bool, "true or false"),
    ):
        if function.get(name) is not None and not isinstance(function[name], kind):
            raise wrong(f"{place}.{name}", function[name], accepted)
    given = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": given}


def _told(function: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in function.items() if name != "strict"}
    told.setdefault("description", "")
    told.setdefault("parameters", {"type": "object", "properties": {}})
    return {"type": "function", "function": told}
