"""Takes the pictures of the playground that the documentation shows.

``python -m tools.playground_pictures URL OUT`` asks a server that runs, with the bundled model, and
needs playwright and a Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from firstlight.demo import DemoPicture, pictures

_DESK = {"viewport": {"width": 960, "height": 800}, "color_scheme": "light"}
_PHONE = {"viewport": {"width": 360, "height": 760}, "color_scheme": "dark"}
_WARM_UP, _EXAMPLE = pictures()[:2]


def take(browser: Any, url: str, out: Path) -> None:
    """All of them."""
    desk = browser.new_page(**_DESK)
    _answered(desk, url, _WARM_UP)  # the first request of a server is not like the others
    _answered(desk, url, _EXAMPLE)
    desk.screenshot(path=out / "playground-answer.png")
    # Enough questions of several lengths that the graphs have something to show.
    for n in (3, 12, 30, 60, 90):
        _ask(desk, "How many shapes are there? " + "And where are they? " * n)
    desk.get_by_role("link", name="Graphs").click()
    desk.locator("#graphs figure svg").first.wait_for()
    desk.set_viewport_size({"width": 960, "height": 1040})
    desk.evaluate("document.activeElement.blur()")
    desk.screenshot(path=out / "playground-graphs.png")
    phone = browser.new_page(**_PHONE)
    _answered(phone, url, _EXAMPLE)
    phone.screenshot(path=out / "playground-phone.png")


def _answered(page: Any, url: str, example: DemoPicture) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(url)
    page.get_by_role("button", name=example.question).click()
    page.locator(".timing").wait_for()
    page.evaluate("document.activeElement.blur()")


def _ask(page: Any, text: str) -> None:
    page.fill("#max-tokens", "16")
    page.fill("#message", text)
    page.press("#message", "Enter")
    page.locator("#send").wait_for()


def main() -> None:
    """The command."""
    url, out = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        take(browser, url, Path(out))
        browser.close()


if __name__ == "__main__":
    main()
