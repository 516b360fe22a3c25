"""The documentation tool finds what is out of date and links that lead nowhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tools.docs.commands import commands
from tools.docs.markdown import table
from tools.docs.pages import ROOT, broken_links, pages, parts_used, regenerate
from tools.docs.parts import PARTS, media_settings, sampling, settings

PAGE = "before\n<!-- generated: x -->\nold\n<!-- end generated -->\nafter\n"


def test_a_generated_part_is_replaced_and_nothing_else() -> None:
    assert regenerate(PAGE, {"x": lambda: "new"}) == PAGE.replace("old", "new")


def test_regenerating_twice_changes_nothing_more() -> None:
    once = regenerate(PAGE, {"x": lambda: "new\n"})
    assert regenerate(once, {"x": lambda: "new\n"}) == once


def test_a_part_that_nothing_generates_is_an_error() -> None:
    with pytest.raises(KeyError):
        regenerate(PAGE, {})


def test_the_parts_of_a_page_are_listed() -> None:
    assert parts_used(PAGE) == {"x"}


@pytest.mark.parametrize(
    ("target", "is_broken"),
    [
        ("other.md", False),
        ("other.md#a-heading-of-it", False),
        ("other.md#no-such-heading", True),
        ("missing.md", True),
        ("#own-heading", False),
        ("#missing", True),
        ("https://example.org/x", False),
        ("../outside.md", True),
    ],
)
def test_a_relative_link_must_lead_somewhere(tmp_path: Path, target: str, is_broken: bool) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "outside.md").touch()
    (root / "other.md").write_text("# A heading, of it\n")
    page = root / "page.md"
    page.write_text(f"## Own heading\n[link]({target})\n```\n[not a link](nowhere.md)\n```\n")
    assert bool(broken_links(page, root)) is is_broken


def test_a_bar_in_a_cell_does_not_open_another_one() -> None:
    assert table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"


def test_commands_lists_every_option_of_run() -> None:
    text = commands()
    assert "### firstlight run" in text
    assert "| `--max-tokens`, `-n` | int | Tokens to generate at most. |" in text
    assert "| `--image`, `-i` | FILE | A picture, or the address of one; may be repeated. |" in text


def test_settings_and_sampling_list_every_field() -> None:
    assert "| `media_redirects` | `3` | an int from 0 to 5 |" in media_settings()
    assert "media_redirects" not in settings()
    assert "| `dtype` | `'auto'` |" in settings()
    assert "| `frequency_penalty` | `0.0` | subtracted once" in sampling()


def test_every_part_can_be_made() -> None:
    assert all(make().strip() for make in PARTS.values())


def test_the_index_leads_to_every_page_once_by_what_it_is_for() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_what_why_and_when_not(page: Path) -> None:
    head = page.read_text().split("\n## ")[0]
    for word in ("**What:**", "**Why:**", "**When not:**"):
        assert word in head


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_as_python_is_python(page: Path) -> None:
    # Generated parts show signatures, which are no statements.
    written = re.sub(r"<!-- generated: .*?<!-- end", "", page.read_text(), flags=re.DOTALL)
    for block in re.findall(r"^```python\n(.*?)^```", written, re.DOTALL | re.MULTILINE):
        ast.parse(block)


def test_the_requests_of_every_endpoint_that_takes_one_are_listed_from_its_model() -> None:
    page = (ROOT / "docs" / "server.md").read_text()
    wanted = {"chat", "completions", "responses", "tokenize", "detokenize"}
    assert {f"request-{name}" for name in wanted} <= parts_used(page)
