"""The playground in Chromium against a real server with the bundled model."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from firstlight.demo import model_path, pictures
from firstlight.engine.build import Parts
from firstlight.server.failures import Failure
from firstlight.server.sse import event
from tests.conftest import TinyCheckpoint
from tests.server.browsing import browser, page_of
from tests.server.running import KEYS, Running, running, tiny_parts

FOUR = next(picture for picture in pictures() if picture.path.name == "four.png")
ONE = next(picture for picture in pictures() if picture.path.name == "one.png")
FAULT = Failure(500, "the server failed; request req-1", "server_error")
ENDS = [
    (event(FAULT.as_dict()).decode(), "the server failed; request req-1"),
    ("", "The connection ended before the answer did."),
]
GIVE = """([kind, name, type, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, { type }));
  const target = document.querySelector("#message");
  if (kind === "paste") {
    target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
  } else {
    const options = { dataTransfer: data, bubbles: true, cancelable: true };
    target.dispatchEvent(new DragEvent("drop", options));
  }
}"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def demo_parts(chrome: Any) -> Iterator[Parts]:
    """The bundled model with few, proven graphs; asked for only where there is a browser."""
    parts = tiny_parts(model_path(), page_size=16, proof="quick")
    yield parts
    assert parts.pipeline is not None
    parts.pipeline.close()


@pytest.fixture(scope="module")
def demo(demo_parts: Parts) -> Iterator[Running]:
    with running(demo_parts) as server:
        yield server


@pytest.fixture
def page(chrome: Any, demo: Running) -> Iterator[Any]:
    with page_of(chrome, demo.url + "/") as page:
        page.locator("#examples button").first.wait_for()
        yield page


def ask(page: Any, text: str) -> Any:
    """Ask and wait for the end; the exchange."""
    page.fill("#message", text)
    page.press("#message", "Enter")
    return last(page)


def last(page: Any) -> Any:
    """The newest exchange, once it is complete."""
    page.locator(".exchange:last-child .after").wait_for()
    return page.locator(".exchange").last


def test_an_example_is_answered_with_one_click(page: Any) -> None:
    page.get_by_role("button", name=FOUR.question).click()
    answer = last(page)
    assert answer.locator(".answer > .text").inner_text() == FOUR.actual
    assert answer.locator(".question img").get_attribute("alt") == "four.png"
    assert page.locator("#status").inner_text() == f"Answer: {FOUR.actual}"


def test_under_an_answer_is_where_its_time_went(page: Any) -> None:
    page.set_input_files("#files", ONE.path)
    # Asked nowhere else: of what is in the cache one row would be left, for a decode graph.
    answer = ask(page, "Tell me where each thing in it lies, and of which colour it is.")
    timing = answer.get_by_role("group", name="Timing of this answer")
    names = timing.locator(".legend li span:nth-child(2)").all_inner_texts()
    assert {"Queue", "Prefill", "Decode", "Other"} <= set(names)
    shares = [float(text.split()[0]) for text in timing.locator(".share").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert "to the first token" in timing.inner_text()
    told = timing.locator(".bar").get_attribute("aria-label")
    assert all(name in told for name in names)
    step = timing.locator(".steps li").first.inner_text()
    assert "graph" in step
    assert re.search(r"bucket (16|32|64)\b", step)
    assert "padding" in step


def test_a_prompt_beyond_the_buckets_has_an_eager_badge_with_the_reason(page: Any) -> None:
    page.fill("#max-tokens", "2")
    answer = ask(page, "shape " * 400)
    step = answer.locator(".steps li").first
    assert step.locator(".badge").inner_text() == "eager"
    assert "no bucket" in step.inner_text()


def test_a_second_question_goes_on_and_finds_the_first_in_the_cache(page: Any) -> None:
    page.set_input_files("#files", [FOUR.path, ONE.path])
    ask(page, FOUR.question)
    answer = ask(page, "Where is the star?")
    assert page.locator(".exchange").count() == 2
    cached = answer.locator(".sentence").inner_text().split(" cached")[0].split()[-1]
    assert int(cached.replace(",", "")) > 0
    answer.locator(".timing summary").click()
    assert answer.locator("tbody tr").count() == 2


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_pictures_can_be_pasted_and_dropped(page: Any, way: str) -> None:
    content = base64.b64encode(ONE.path.read_bytes()).decode()
    page.evaluate(GIVE, [way, "one.png", "image/png", content])
    page.get_by_role("img", name="one.png").wait_for()
    page.get_by_role("button", name="Remove one.png").click()
    assert page.locator("#attached li").count() == 0
    page.evaluate(GIVE, [way, "notes.txt", "text/plain", content])
    assert page.get_by_role("alert").inner_text() == "Not a picture: notes.txt"


def test_the_last_question_can_be_edited_and_its_answer_made_anew(page: Any) -> None:
    page.set_input_files("#files", ONE.path)
    ask(page, "How many shapes are there?")
    page.get_by_role("button", name="Edit question").click()
    assert page.input_value("#message") == "How many shapes are there?"
    assert page.locator("#attached img").count() == 1
    answer = ask(page, ONE.question)
    assert page.locator(".exchange").count() == 1
    assert answer.locator(".answer > .text").inner_text() == ONE.actual
    page.get_by_role("button", name="Regenerate").click()
    assert last(page).locator(".answer > .text").inner_text() == ONE.actual
    page.get_by_role("button", name="New chat").click()
    assert page.locator(".exchange").count() == 0


def test_an_answer_is_copied(chrome: Any, demo: Running) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with page_of(chrome, demo.url + "/", permissions=permissions) as page:
        page.get_by_role("button", name=ONE.question).click()
        last(page).get_by_role("button", name="Copy").click()
        page.get_by_text("Copied").wait_for(state="attached")
        assert page.evaluate("navigator.clipboard.readText()") == ONE.actual


def test_a_refusal_is_shown_in_words_with_its_field(page: Any) -> None:
    page.fill("#temperature", "-1")
    answer = ask(page, "What is it?")
    alert = answer.get_by_role("alert")
    assert "Refused (400)" in alert.inner_text()
    assert alert.locator("code").inner_text() == "temperature"
    page.fill("#temperature", "0")
    page.get_by_role("button", name="Try again").click()
    assert last(page).get_by_role("alert").count() == 0


def test_an_answer_can_be_stopped_and_leaves_the_server(chrome: Any, server: Running) -> None:
    """The tiny model's weights are random: its answers go on to their limit."""
    with page_of(chrome, server.url + "/") as page:
        page.fill("#max-tokens", "")
        page.fill("#message", "Go on")
        page.press("#message", "Enter")
        page.locator(".answer.running > .text:not(:empty)").wait_for()
        page.locator("#stop").click()
        assert "You stopped this answer" in last(page).inner_text()
        assert server.idle()


def test_a_key_is_asked_for_only_where_it_is_needed(chrome: Any, demo_parts: Parts) -> None:
    with running(demo_parts, keys=KEYS) as locked, page_of(chrome, locked.url + "/") as page:
        page.fill("#key", "wrong")
        page.press("#key", "Enter")
        page.get_by_text("the API key is not one of this server's").wait_for()
        page.fill("#key", KEYS[0])
        page.press("#key", "Enter")
        page.get_by_role("button", name=ONE.question).click()
        assert last(page).locator(".answer > .text").inner_text() == ONE.actual
        kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
        assert page.evaluate(kept) == [[KEYS[0]], [], ""]


def test_no_key_is_asked_for_where_none_is_needed(page: Any) -> None:
    assert not page.locator("#key-form").is_visible()


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(page: Any) -> None:
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        )
    examples = [p.question for p in pictures() if p.in_distribution]
    form = ["message", "pick", "temperature", "max-tokens", "send"]
    assert reached[:13] == ["skip", "to-chat", "to-graphs", *examples, *form]
    page.focus("#skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "message"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_graphs_are_shown_as_pictures_with_words_for_each(
    chrome: Any, tiny_checkpoint: TinyCheckpoint
) -> None:
    parts = tiny_parts(
        tiny_checkpoint("llama"),
        padding_cost="measured",
        prefill_buckets=(32, 64),
        decode_buckets=(1,),
    )
    with running(parts) as server, page_of(chrome, server.url + "/") as page:
        page.fill("#max-tokens", "3")
        ask(page, "word " * 90)
        page.get_by_role("link", name="Graphs").click()
        page.locator("#graphs figure svg").first.wait_for()
        captions = " ".join(page.locator("figcaption").all_inner_texts())
        for wanted in ("Replays", "Seconds to capture", "Bytes", "Share of padding", "Measured"):
            assert wanted in captions
        drawn = page.locator("#graphs svg, #graphs .bar")
        told = [drawn.nth(i).get_attribute("aria-label") for i in range(drawn.count())]
        assert all(told)
        columns = "(all) => new Set(all.map((one) => one.getAttribute('x'))).size"
        for caption in ("Seconds to capture", "Bytes that each"):
            drawings = page.locator("figure", has_text=caption)
            found = [
                drawings.nth(i).locator("rect.fill").evaluate_all(columns)
                for i in range(drawings.count())
            ]
            assert found == [2, 1], caption  # a column for each bucket of prefill, and of decode
        coverage = [text for text in told if text.startswith(("prefill: ", "decode: "))]
        assert len(coverage) == 4
        assert sum("from graphs" in text for text in coverage) == 2
        assert sum("of padding" in text for text in coverage) == 2
        reasons = page.get_by_role("group", name="Why batches ran eager")
        assert "The batch has more tokens than the largest bucket." in reasons.inner_text()
        page.get_by_text("All buckets as a table").first.click()
        assert page.locator("details[open] tbody tr").count() == 2
        with page.expect_response("**/v1/graphs"):
            page.get_by_role("button", name="Refresh").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction_only(chrome: Any, demo: Running, scheme: str) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    with page_of(chrome, demo.url + "/", **options) as page:
        page.get_by_role("button", name=FOUR.question).click()
        last(page)
        width = "document.documentElement.scrollWidth"
        assert page.evaluate(width) == 360
        page.goto(demo.url + "/#graphs")
        page.locator("#graphs figure svg").first.wait_for()
        assert page.evaluate(width) == 360


def test_a_model_without_pictures_is_asked_in_words(
    chrome: Any, tiny_checkpoint: TinyCheckpoint
) -> None:
    parts = tiny_parts(tiny_checkpoint("llama"), prefill_buckets=(64,), decode_buckets=(1,))
    with running(parts) as server, page_of(chrome, server.url + "/") as page:
        page.get_by_text("context").wait_for()
        assert page.locator("h2").first.inner_text() == "Ask a question"
        assert not page.locator("#pick").is_visible()
        assert not page.locator("#examples").is_visible()
        page.fill("#max-tokens", "4")
        answer = ask(page, "Hello")
        assert "0 of pictures" in answer.locator(".sentence").inner_text()


@pytest.mark.parametrize(("end", "said"), ENDS, ids=["error", "cut"])
def test_an_answer_that_breaks_off_says_so_and_keeps_its_text(
    page: Any, end: str, said: str
) -> None:
    piece = {"choices": [{"index": 0, "delta": {"content": "a re"}, "finish_reason": None}]}
    events = f"data: {json.dumps(piece)}\n\n{end}"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(body=events, headers={"content-type": "text/event-stream"}),
    )
    answer = ask(page, "What is it?")
    assert said in answer.get_by_role("alert").inner_text()
    assert answer.locator(".answer > .text").inner_text() == "a re"
    assert "not sent along" in answer.inner_text()


def test_thoughts_are_told_from_the_answer(page: Any) -> None:
    deltas = [{"reasoning_content": "It is round."}, {"content": "a circle"}]
    pieces = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    events = b"".join(event({"choices": [piece]}) for piece in pieces)
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(body=events, content_type="text/event-stream"),
    )
    answer = ask(page, "What is it?")  # the stream ends early, which changes nothing here
    assert answer.locator(".answer > .text").inner_text() == "a circle"
    answer.locator(".thoughts summary").click()
    assert answer.locator(".thoughts .text").inner_text() == "It is round."


def test_an_answer_in_markdown_is_shown_as_elements_and_copied_as_it_came(
    chrome: Any, demo: Running
) -> None:
    text = "It has **two** parts:\n\n1. `a`\n2. b\n"
    pieces = [{"index": 0, "delta": {"content": c}, "finish_reason": None} for c in text]
    events = b"".join(event({"choices": [piece]}) for piece in pieces)
    permissions = ["clipboard-read", "clipboard-write"]
    with page_of(chrome, demo.url + "/", permissions=permissions) as page:
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(body=events, content_type="text/event-stream"),
        )
        answer = ask(page, "What is it?")
        assert answer.locator(".answer > .text > p strong").inner_text() == "two"
        assert answer.locator(".answer > .text > ol > li").all_inner_texts() == ["a", "b"]
        items = answer.locator(".answer > .text > ol")
        assert items.evaluate("(one) => getComputedStyle(one).listStyleType") == "decimal"
        answer.get_by_role("button", name="Copy").click()
        page.get_by_text("Copied").wait_for(state="attached")
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_a_full_server_says_when_to_try_again(page: Any) -> None:
    failure = Failure(429, "the queue is full", "rate_limit_error", None, "queue_full")
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(
            status=429, json=failure.as_dict(), headers={"retry-after": "3"}
        ),
    )
    alert = ask(page, "What is it?").get_by_role("alert")
    assert "Refused (429)" in alert.inner_text()
    assert "Try again in 3 s." in alert.inner_text()


def test_behind_a_proxy_the_page_may_have_a_path_of_its_own(chrome: Any, demo: Running) -> None:
    prefix = demo.url + "/models/demo/"

    def forward(route: Any) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace(prefix, demo.url + "/")))

    with page_of(chrome, demo.url + "/") as page:
        page.wait_for_load_state("networkidle")
        page.route(prefix + "**", forward)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(prefix)
        page.get_by_role("button", name=ONE.question).click()
        assert last(page).locator(".answer > .text").inner_text() == ONE.actual
        assert all(url.startswith((prefix, "data:")) for url in asked)


def test_a_stopped_server_is_said_in_words(chrome: Any, demo: Running) -> None:
    with page_of(chrome, demo.url + "/") as page:
        page.locator("#examples button").first.wait_for()
        page.context.set_offline(True)
        alert = ask(page, "Are you there?").get_by_role("alert")
        assert "The server cannot be reached" in alert.inner_text()
