"""``python -m tools.docs [--check]``: rewrite the generated parts, or say what is out of date."""

from __future__ import annotations

import difflib
import sys

from tools.docs.pages import ROOT, broken_links, pages, parts_used, regenerate
from tools.docs.parts import PARTS


def main(arguments: list[str]) -> int:
    """0 where everything is as it should be, else 1 after saying what is not."""
    check = "--check" in arguments
    problems: list[str] = []
    used: set[str] = set()
    for page in pages():
        text = page.read_text()
        used |= parts_used(text)
        fresh = regenerate(text, PARTS)
        name = str(page.relative_to(ROOT))
        if fresh != text and check:
            lines = difflib.unified_diff(
                text.splitlines(), fresh.splitlines(), name, "generated", lineterm="", n=0
            )
            problems.append("\n".join(lines))
        elif fresh != text:
            page.write_text(fresh)
            print(f"rewrote {name}")
    problems += [f"no page shows the generated part {p!r}" for p in sorted(PARTS.keys() - used)]
    problems += [f"broken link in {link}" for page in pages() for link in broken_links(page)]
    for problem in problems:
        print(problem)
    if problems and check:
        print("run scripts/docs to bring generated parts up to date")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
