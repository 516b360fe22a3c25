"""Thoughts are told from the answer, and forms hold for the answer alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from firstlight.server.schemas.chat import ChatRequest
from tests.conftest import TinyCheckpoint
from tests.engine.tools.templates import HERMES, THINKING, with_template
from tests.server.asking import CHAT, body, streamed, user
from tests.server.running import Running, running, tiny_parts
from tests.server.scripted import characters, script

TEXT = "Hm, 1 + 1.\n</think>\n\n42"
# The prompt begins the thoughts, or the model does.
KINDS = {"prompt": (THINKING, TEXT), "model": (HERMES + "{# <think></think> #}", "<think>" + TEXT)}
Thinker = tuple[Running, str]


@pytest.fixture(scope="module", params=list(KINDS))
def thinker(
    request: pytest.FixtureRequest,
    tiny_checkpoint: TinyCheckpoint,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Thinker]:
    template, text = KINDS[request.param]
    folder: Path = tmp_path_factory.mktemp("thinking") / "model"
    parts = tiny_parts(with_template(tiny_checkpoint("llama"), folder, template))
    with running(parts) as server:
        yield server, text


@pytest.fixture
def http(thinker: Thinker) -> Iterator[httpx2.Client]:
    with thinker[0].client() as client:
        yield client


def asked(
    thinker: Thinker, monkeypatch: pytest.MonkeyPatch, text: str, **fields: Any
) -> dict[str, Any]:
    """A request that is answered with ``text``."""
    parts = thinker[0].service.parts
    script(monkeypatch, {77: [*characters(parts, text), min(parts.model.eos_token_ids)]})
    return body(tokens=100, ignore_eos=False, seed=77, **fields)


def test_whole_answers_and_streams_have_the_thoughts_apart(
    thinker: Thinker, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(thinker, monkeypatch, thinker[1])
    answer = http.post(CHAT, json=request).json()
    details = answer["usage"]["completion_tokens_details"]
    thought = characters(thinker[0].service.parts, thinker[1].split("\n\n")[0])
    assert details["reasoning_tokens"] == len(thought)
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm, 1 + 1.", "42")
    deltas = [c["choices"][0]["delta"] for c in streamed(http, CHAT, request)[:-1]]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "Hm, 1 + 1."
    assert "".join(d.get("content") or "" for d in deltas) == "42"
    assert sum("reasoning_content" in delta for delta in deltas) > 5


def test_a_form_is_that_of_the_answer_behind_the_thoughts(thinker: Thinker) -> None:
    fields = {"messages": user("Hi"), "structured_outputs": {"regex": "[0-9]{2}"}}
    body = ChatRequest.model_validate(fields)
    form = thinker[0].service.forms.chat(body).params(body.params()).structured_outputs
    assert form is not None
    assert form.thoughts == ("<think>", "</think>")
    assert form.thinking == (not thinker[1].startswith("<think>"))


def test_an_answer_that_is_cut_while_the_model_thinks_has_no_content(
    thinker: Thinker, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(thinker, monkeypatch, thinker[1]) | {"max_tokens": 12}
    choice = http.post(CHAT, json=request).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"].startswith("H")


def test_thoughts_stay_in_the_answer_where_nobody_wants_them_apart(
    thinker: Thinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, text = thinker[0].service.parts, thinker[1]
    with running(parts, reasoning_parser="none") as server, server.client() as http:
        request = asked((server, text), monkeypatch, text)
        message = http.post(CHAT, json=request).json()["choices"][0]["message"]
    assert message["content"] == text
    assert "reasoning_content" not in message
