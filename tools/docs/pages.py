"""The pages, their generated parts and their links."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PART = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages(root: Path = ROOT) -> list[Path]:
    """All markdown pages: those at the top, and those below docs/ and examples/."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    return sorted(found)


def regenerate(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """``text`` with every generated part made anew.

    Raises:
        KeyError: the page asks for a part that nothing generates.
    """
    return _PART.sub(lambda m: f"{m[1]}{parts[m[2]]().strip()}\n{m[3]}", text)


def parts_used(text: str) -> set[str]:
    """Names of the generated parts of a page."""
    return {match[2] for match in _PART.finditer(text)}


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of it."""
    broken = []
    for match in _LINK.finditer(_FENCE.sub("", page.read_text())):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        missing = not path.exists() or (anchor and anchor not in _anchors(path))
        if missing or not path.is_relative_to(root):
            broken.append(f"{page.relative_to(root)}: {target}")
    return broken


def _anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as the usual renderers make them."""
    if path.suffix != ".md":
        return set()
    headings = _HEADING.findall(_FENCE.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
