"""Prompts have the length that was asked for and are new each round."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peers.judged import TURNS, Call
from benchmarks.peers.prompts import PromptMaker
from tools.tiny import vocabulary


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> PromptMaker:
    tokenizer = vocabulary.build_tokenizer(vocabulary.QWEN_VL)
    return PromptMaker(tokenizer, tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("tokens", [32, 128, 2048])
def test_a_text_has_exactly_the_tokens_asked_for(maker: PromptMaker, tokens: int) -> None:
    (request,) = maker.requests(Call(tokens, 1), "turn", 0)
    assert len(request.ids) == tokens
    assert maker.tokenizer(request.text)["input_ids"] == request.ids


def test_rounds_and_requests_share_no_beginning_that_a_cache_could_serve(
    maker: PromptMaker,
) -> None:
    call = Call(64, 1, requests=8)
    asked = [r for n in (-1, 0, 1) for r in maker.requests(call, "eight", n)]
    assert len({tuple(request.ids[:16]) for request in asked}) == len(asked)


def test_a_round_is_the_same_for_every_engine(maker: PromptMaker) -> None:
    call = Call(64, 1, picture=True)
    first, second = (maker.requests(call, "image", 3) for _ in range(2))
    assert first == second


def test_the_last_question_of_the_picture_turn_repeats_the_first(maker: PromptMaker) -> None:
    calls = TURNS["image"].calls
    first, other, again = (maker.requests(call, "image", 0)[0] for call in calls)
    assert (first.text, first.images) == (again.text, again.images)
    assert first.images == other.images
    assert first.text != other.text


def test_a_picture_is_new_each_round_and_stands_before_the_question(maker: PromptMaker) -> None:
    call = TURNS["image"].calls[0]
    (one,), (two,) = maker.requests(call, "image", 0), maker.requests(call, "image", 1)
    assert Path(one.images[0]).read_bytes() != Path(two.images[0]).read_bytes()
    assert one.text.startswith(maker.media)
