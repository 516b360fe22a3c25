"""Requests that leave, and requests beside each other (cases H31 and H32), through the engine."""

from __future__ import annotations

import random

import pytest

from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.engine.engine import completion
from tests.cases.steps import (
    assert_idle,
    assert_same,
    assert_sensitive,
    eager_llm,
    letters,
    params,
    settle,
)
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, tiny_llm, user
from tests.pictures import picture


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint("qwen3_vl"), prefix_cache=True)


def crowd(seed: int) -> list[list[Part]]:
    """Text only, one picture, three of different sizes; ``seed`` is that of one picture."""
    sizes = [(32, 32), (64, 48), (96, 32)]
    return [
        ["What is it?"],
        [picture(48, 32, seed=seed), "What is it?"],
        [*(picture(*size, seed=i) for i, size in enumerate(sizes)), "Compare."],
        ["Hello there, what colour is the square?"],
    ]


def test_requests_together_answer_as_alone_and_one_picture_changes_no_other_answer(
    llm: LLM, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H32: nothing bleeds from one request into another, to the last bit."""
    eager = eager_llm(tiny_checkpoint("qwen3_vl"))
    rounds = []
    for seed in (1, 2):
        llm.flush_caches()  # so that both rounds compute the same rows
        rounds.append(llm.chat([user(*parts) for parts in crowd(seed)], params()))
    one, other = rounds
    assert_sensitive(one[1], other[1])
    for i, parts in enumerate(crowd(1)):
        assert_same(one[i], eager.chat(user(*parts), params()))
        if i != 1:
            assert one[i].token_ids == other[i].token_ids
            assert one[i].logprobs == other[i].logprobs


def test_24_requests_in_any_order_answer_as_alone_in_every_round(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """H32: texts, one picture, three of different sizes; one half prefilled, one fully cached."""
    path = tiny_checkpoint("qwen3_vl")
    llm = tiny_llm(
        path,
        max_num_seqs=24,
        max_batch_tokens=128,
        prefill_buckets=(32, 128),
        decode_buckets=(8, 24),
        proof="off",
        prefix_cache=True,
    )
    eager = eager_llm(path)
    asked = [user(*parts) for seed in range(1, 6) for parts in crowd(seed)]
    asked += [user(letters(n, seed=n)) for n in (1, 63, 64, 200)]
    expected = [eager.chat(messages, params()) for messages in asked]
    long, rng = len(asked) - 1, random.Random(0)
    for _ in range(10):
        llm.flush_caches()
        llm.chat(asked[0], params())
        requests = [llm.parts.admission.chat(messages, params()) for messages in asked]
        llm.parts.engine.add(requests[long])
        assert llm.parts.engine.step()
        assert 0 < requests[long].computed < requests[long].prompt_length
        for i in rng.sample(range(long), long):
            llm.parts.engine.add(requests[i])
        settle(llm, within=60)
        assert (requests[0].cached_tokens or 0) >= expected[0].usage.prompt_tokens - 4
        for request, reference in zip(requests, expected, strict=True):
            assert_same(completion(request), reference)
    assert_idle(llm)


@pytest.mark.parametrize("tokens", [0, 1, 3], ids=["waiting", "prefilled", "decoding"])
def test_an_aborted_request_is_gone_at_once_and_leaves_its_prefix(
    tokens: int, llm: LLM, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H31: 20 times over; nothing is held after the abort, and the same prompt finds its pages."""
    asked = user(picture(64, 64, seed=40 + tokens), letters(60, seed=tokens))
    for _ in range(20):
        request = llm.parts.admission.chat(asked, params(500))
        llm.parts.engine.add(request)
        while len(request.output_ids) < tokens:
            assert llm.parts.engine.step()
        llm.parts.engine.abort(request)
        assert_idle(llm)
    answer = llm.chat(asked, params())
    assert_same(answer, eager_llm(tiny_checkpoint("qwen3_vl")).chat(asked, params()))
    assert (answer.usage.cached_tokens > 70) is (tokens > 0)


def test_a_stream_gives_its_own_text_whatever_is_asked_between_its_pieces(llm: LLM) -> None:
    """H32: a second stream and a whole chat run while the first stream waits."""
    asked = [user(*parts) for parts in crowd(1)]
    expected = [llm.chat(messages, params(16)).text for messages in asked]
    first = llm.stream_chat(asked[0], params(16))
    pieces = [next(first)]
    second = llm.stream_chat(asked[1], params(16))
    others = [next(second)]
    assert llm.chat(asked[3], params(4)).text
    others += list(second)
    pieces += list(first)
    for got, text in ((pieces, expected[0]), (others, expected[1])):
        *parts, last = got
        assert isinstance(last, Completion)
        assert "".join(map(str, parts)) == last.text == text
    assert_idle(llm)
