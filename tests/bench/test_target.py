"""What is asked of a server before a load, and what is said if it does not answer."""

from __future__ import annotations

import asyncio

import pytest

from firstlight.bench import LoadSettings, measure
from firstlight.errors import ConfigError
from tests.bench.fake_server import FakeServer, answer, serving
from tests.bench.loads import load


def test_the_first_model_of_the_list_is_asked() -> None:
    server = FakeServer(models=("one", "two"))
    assert load(server).model == "one"
    assert {asked["model"] for asked in server.asked} == {"one"}


def test_a_named_model_is_asked_whatever_is_listed() -> None:
    server = FakeServer(models=())
    assert load(server, model="mine").model == "mine"
    assert {asked["model"] for asked in server.asked} == {"mine"}


def test_words_are_counted_by_the_servers_own_tokenizer() -> None:
    server = FakeServer()  # a token for each word
    load(server, input_tokens="30")
    texts = [asked["messages"][0]["content"][0]["text"] for asked in server.asked]
    assert {len(text.split()) for text in texts} == {30}


def test_another_server_gets_no_field_of_ours() -> None:
    server = FakeServer()
    load(server)
    assert set(server.asked[0]) == {
        *("model", "messages", "stream", "stream_options", "temperature", "max_tokens")
    }
    load(server, ignore_eos=True)
    assert server.asked[-1]["ignore_eos"] is True


def test_the_key_is_sent_and_stands_in_no_result() -> None:
    server = FakeServer()
    found = load(server, key="a-secret")
    assert {h.get("authorization") for h in server.headers} == {"Bearer a-secret"}
    assert "a-secret" not in repr(found)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (FakeServer(models=()), "lists no models; name one with --model"),
        (FakeServer(counts=False), "without usage.prompt_tokens"),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused(server: FakeServer, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(server)


def test_a_load_ends_early_if_no_warm_up_request_is_answered() -> None:
    server = FakeServer(script=lambda n: ['{"error": {"message": "no", "code": "bad"}}'])
    server.status = lambda n: 400
    with pytest.raises(ConfigError, match="no request is answered: HTTP 400 bad: no"):
        load(server, warmup=2)
    assert len(server.asked) == 2


def test_one_answered_warm_up_request_is_enough() -> None:
    server = FakeServer(script=lambda n: [None] if n == 0 else answer("a"))
    assert load(server, warmup=2).answers[0].error is None


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9' cannot be asked"):
        asyncio.run(measure(LoadSettings(), "http://127.0.0.1:9"))


def test_an_address_without_its_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="accepted: an address with http"):
        asyncio.run(measure(LoadSettings(), "localhost:8000"))


def test_an_address_may_end_in_v1() -> None:
    async def run() -> str:
        server = FakeServer()
        async with serving(server):
            settings = LoadSettings(num_requests=1, warmup=0)
            return (await measure(settings, f"{server.url}/v1/")).model

    assert asyncio.run(run()) == "fake"
