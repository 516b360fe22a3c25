"""Answers in Markdown become elements in a real browser, and never anything that acts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.browsing import browser, page_of
from tests.server.running import Running

SHOWN = """async (pieces) => {
  const { showMarkdown } = await import("/playground/markdown.js");
  const element = document.createElement("div");
  document.querySelector("#conversation").append(element);
  let text = "";
  for (const piece of pieces) {
    text += piece;
    showMarkdown(element, text);
  }
  return element.innerHTML;
}"""
LINK = 'rel="noopener noreferrer" target="_blank"'


@pytest.fixture(scope="module")
def page(server: Running) -> Iterator[Any]:
    with browser() as chrome, page_of(chrome, server.url + "/") as page:
        page.wait_for_load_state("networkidle")
        yield page


def shown(page: Any, text: str) -> str:
    return str(page.evaluate(SHOWN, [text]))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain", "<p>plain</p>"),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("**a *b* c** __d__ ~~e~~", "<strong>a <em>b</em> c</strong> <strong>d</strong> "),
        ("a_snake_case_name", "<p>a_snake_case_name</p>"),
        ("*open and **open", "<p>*open and **open</p>"),
        (r"\*not\* this", "<p>*not* this</p>"),
        ("`a<b> **c**`", "<p><code>a&lt;b&gt; **c**</code></p>"),
        ("# One\n## Two", "<h3>One</h3><h4>Two</h4>"),
        ("- a\n- b\n  1. c\n", "<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>"),
        ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
        ("> q", "<blockquote><p>q</p></blockquote>"),
        ("a\n\n---\nb", "<p>a</p><hr><p>b</p>"),
        ("```py\nx = 1\n\n# no\n```\nafter", "<code>x = 1\n\n# no</code></pre><p>after</p>"),
        ("```\nnot closed yet", "<code>not closed yet</code>"),
        ("[t](https://a.example/x)", f'<a href="https://a.example/x" {LINK}>t</a>'),
        (
            "see https://a.example/x.",
            f'<a href="https://a.example/x" {LINK}>https://a.example/x</a>.',
        ),
        ("![p](https://a.example/p.png)", f'<a href="https://a.example/p.png" {LINK}>p</a>'),
        ("| a | b |\n|---|---|\n| 1 | `2` |", "<tr><td>1</td><td><code>2</code></td></tr>"),
    ],
)
def test_a_text_becomes_elements(page: Any, text: str, html: str) -> None:
    assert html in shown(page, text)


@pytest.mark.parametrize(
    "text",
    [
        "<script>window.hit = 1</script>",
        "<img src=x onerror='window.hit = 1'>",
        "[x](javascript:window.hit=1)",
        "[x](JaVaScRiPt:window.hit=1)",
        "[x](data:text/html,<script>window.hit=1</script>)",
        "[x](/v1/graphs)",
        "[x](//other.example)",
        "![x](/v1/graphs)",
        "```<img src=x onerror=window.hit=1>\na\n```",
        "| <b>a</b> |\n|---|\n| <img src=x> |",
        "# <svg onload=window.hit=1>",
    ],
)
def test_nothing_in_an_answer_acts_or_is_loaded(page: Any, text: str) -> None:
    made = shown(page, text)
    element = page.locator("#conversation > div").last
    kinds = set(element.locator("*").evaluate_all("(all) => all.map((one) => one.localName)"))
    assert not kinds & {"script", "img", "svg", "iframe", "b", "a"}, made
    names = element.locator("*").evaluate_all(
        "(all) => all.flatMap((one) => one.getAttributeNames())"
    )
    assert not {"onerror", "onload", "src", "style"} & set(names)
    assert page.evaluate("window.hit") is None


@pytest.mark.parametrize("size", [1, 3])
def test_a_growing_answer_ends_as_the_whole_one(page: Any, size: int) -> None:
    text = "# T\n\n- a\n- **b**\n\n```\ncode\n```\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\nend [l](https://a.example)"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert page.evaluate(SHOWN, pieces) == shown(page, text)


def test_blocks_that_are_done_keep_their_elements_while_more_comes(page: Any) -> None:
    kept = page.evaluate(
        """async () => {
          const { showMarkdown } = await import("/playground/markdown.js");
          const element = document.createElement("div");
          showMarkdown(element, "first\\n\\nsec");
          const [first] = element.children;
          showMarkdown(element, "first\\n\\nsecond");
          return [element.children[0] === first, element.children[1].textContent];
        }"""
    )
    assert kept == [True, "second"]


@pytest.mark.parametrize(
    "text",
    [
        *("*a " * 20_000, "[a](" * 20_000, "[" * 50_000 + "](https://a.example)", "`a" * 20_000),
        *("> " * 20_000 + "x", "- " * 20_000 + "x", "|" * 20_000 + "\n" + "|-" * 20_000),
    ],
    ids=["emphasis", "links", "brackets", "code", "quotes", "lists", "tables"],
)
def test_no_text_takes_long(page: Any, text: str) -> None:
    seconds = page.evaluate(
        """async (text) => {
          const { showMarkdown } = await import("/playground/markdown.js");
          const began = performance.now();
          showMarkdown(document.createElement("div"), text);
          return (performance.now() - began) / 1000;
        }""",
        text,
    )
    assert seconds < 2
