"""The reference of `firstlight.graphs`: complete, and made of the docstrings."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
from tools.docs.api import doc_of, entry, member_names, prose

PACKAGES = ["firstlight.graphs", "firstlight.graphs.proof", "firstlight.graphs.sanitizer"]
PAGE = Path(__file__).parents[2] / "docs" / "graphs-api.md"


def chapter(package: str) -> str:
    """The part of the page about one package."""
    text = PAGE.read_text().split(f"\n## {package}\n")[1]
    return text.split("\n## ")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_has_exactly_the_public_names(package: str) -> None:
    names = importlib.import_module(package).__all__
    assert re.findall(r"^### (\w+)$", chapter(package), re.MULTILINE) == list(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_and_member_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    silent = []
    for name in module.__all__:
        thing = getattr(module, name)
        if not doc_of(thing):
            silent.append(name)
        if isinstance(thing, type):
            members = ((m, getattr(thing, m, None)) for m in member_names(thing))
            silent += [f"{name}.{m}" for m, value in members if not doc_of(value)]
    assert silent == []


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("BodyInputs", "`embeds`: [T, input_embeds_hidden_size], model dtype"),
        ("SlotRegistry", "*Raises:* SlotError: a value is missing, or of wrong rows"),
        ("GraphRunner", "hidden states [live tokens, hidden_size]"),
        ("Body", "Hidden states [T, hidden_size]."),
        ("parse_ladder", "Raises: ConfigError: an entry is no positive integer."),
    ],
)
def test_shapes_and_errors_are_on_the_page(name: str, fact: str) -> None:
    text = chapter("firstlight.graphs").split(f"### {name}\n")[1].split("\n### ")[0]
    assert fact in text


class Colour(Enum):
    """What a picture is full of."""

    RED = 1  # like blood
    BLUE = 2


@dataclass
class Sized:
    """Something with a size.

    Attributes:
        size: in rows;
            at least one.
    """

    size: int = 3


def area(side: float, *, times: int = 2) -> float:
    """How much ``side`` covers, see :func:`area`.

    Args:
        side: in metres.

    Raises:
        ValueError: ``side`` is negative.
    """
    return side * side * times


def test_members_of_an_enum_come_with_what_stands_behind_them() -> None:
    assert "- `RED` = `1` — like blood\n- `BLUE` = `2`" in entry("Colour", Colour)


def test_a_section_becomes_a_list_and_lines_are_joined() -> None:
    assert "class Sized(size: int = 3)" in entry("Sized", Sized)
    assert "- `size`: in rows; at least one." in entry("Sized", Sized)


def test_a_function_shows_types_and_errors() -> None:
    text = entry("area", area)
    assert "area(side: float, *, times: int = 2) -> float" in text
    assert "How much `side` covers, see `area`." in text
    assert "Raises: ValueError: `side` is negative." in text


def test_paragraphs_stay_apart() -> None:
    assert prose("One\nline.\n\nTwo.") == "One line.\n\nTwo."
