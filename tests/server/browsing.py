"""A real browser for the tests of the playground: Chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Every JSON value that the page gets notes which fields were read and are not there. Names that
# come from the data itself, such as those of buckets and parts, may be missing.
GUARD = """
(() => {
  window.missing = [];
  const free = /(replays|seconds_by_part|bytes_by_kind)$/;
  const guard = (value, path) => {
    if (value === null || typeof value !== "object") return value;
    return new Proxy(value, {
      get(target, name) {
        const asked = typeof name === "string" && !/^(-?\\d+|then|toJSON)$/.test(name);
        const known = name in target || !asked;
        if (!known && !free.test(path)) window.missing.push(`${path}.${name}`);
        return guard(Reflect.get(target, name), `${path}.${String(name)}`);
      },
    });
  };
  const parse = JSON.parse;
  JSON.parse = (text) => guard(parse(text), "event");
  const json = Response.prototype.json;
  Response.prototype.json = async function () {
    return guard(await json.call(this), new URL(this.url).pathname);
  };
})();
"""


def chromium() -> str | None:
    """The path of an installed Chromium; None for the one that playwright brings."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser; the test is skipped, with the reason, where there is none."""
    reason = "the playground in a browser: playwright is not installed"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as playwright:
        try:
            # Chromium's own sandbox does not work for root, as whom containers often run.
            found = playwright.chromium.launch(
                executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
        except api.Error as error:
            first = str(error).splitlines()[0]
            pytest.skip(f"the playground in a browser: no Chromium can be started ({first})")
        try:
            yield found
        finally:
            found.close()


@contextmanager
def page_of(chrome: Any, url: str, **options: Any) -> Iterator[Any]:
    """A page in a context of its own; it must not fail, warn, or read what no answer has."""
    defaults = {"viewport": {"width": 1000, "height": 800}, "reduced_motion": "reduce"}
    context = chrome.new_context(**{**defaults, **options})
    context.set_default_timeout(10_000)
    context.add_init_script(GUARD)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(url)
        yield page
        assert page.evaluate("window.missing") == []
        assert [text for text in said if "Failed to load resource" not in text] == []
        assert all(address.startswith((url, "data:", "blob:")) for address in asked)
        visible = page.inner_text("body")
        assert not {"undefined", "NaN", "[object Object]"} & set(visible.split())
    finally:
        context.close()
