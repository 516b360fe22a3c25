"""What the documentation promises is what the package has."""

from __future__ import annotations

from pathlib import Path

import pytest

import firstlight
from firstlight.models.registry import AdapterRegistry

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/*.md"))


@pytest.mark.parametrize("name", firstlight.__all__)
def test_every_public_name_can_be_imported_and_is_in_the_docs(name: str) -> None:
    assert hasattr(firstlight, name)
    assert f"`{name}`" in (ROOT / "docs" / "python-api.md").read_text()


def test_the_package_has_no_attribute_that_it_does_not_export() -> None:
    with pytest.raises(AttributeError, match="no attribute 'llm_engine'"):
        firstlight.__getattr__("llm_engine")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_opens_with_what_why_and_when_not(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0].startswith("# ")
    starts = ("**What:**", "**Why:**", "**When not:**")
    assert all(line.startswith(start) for line, start in zip(lines[2:5], starts, strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_linked_from_the_readme(page: Path) -> None:
    assert f"(docs/{page.name})" in (ROOT / "README.md").read_text()


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text().split("```")[1].splitlines()
    commands = [line.split()[0] for line in opening[1:] if line]
    assert commands == ["scripts/demo", "scripts/test"]


def test_the_readme_lists_every_supported_architecture() -> None:
    readme = (ROOT / "README.md").read_text()
    names = AdapterRegistry(entry_points=False).architectures
    assert [name for name in names if f"`{name}`" not in readme] == []
