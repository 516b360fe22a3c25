"""Answers as the load test reads them: what is missing or different is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.load.answer import Answer, Choice, CutError, StreamedAnswer, ToldError, whole_answer
from tools.load.asked import CHAT, RESPONSES, TEXT
from tools.load.compare import CLOSE, Spread

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
WHOLE = Answer((Choice("ab", "stop"),), (5, 2))


def chunk(index: int = 0, text: str | None = None, finish: str | None = None) -> str:
    delta = {} if text is None else {"content": text}
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return "data: " + json.dumps({"choices": [choice]})


def taken(*frames: str, path: str = CHAT, choices: int = 1) -> Answer:
    streamed = StreamedAnswer(path, choices)
    for frame in frames:
        streamed.take(frame)
    return streamed.answer()


def test_a_stream_and_a_whole_answer_are_the_same() -> None:
    usage = "data: " + json.dumps({"choices": [], "usage": USAGE})
    streamed = taken(chunk(text="a"), chunk(text="b"), chunk(finish="stop"), usage, "data: [DONE]")
    message = {"content": "ab"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    assert streamed == whole_answer(CHAT, {"choices": [choice], "usage": USAGE}) == WHOLE


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [chunk(text="a")],
        [chunk(text="a"), chunk(finish="stop")],
        [chunk(text="a"), "data: [DONE]"],
        [chunk(finish="stop"), chunk(text="b"), "data: [DONE]"],
        [chunk(finish="stop"), "data: [DONE]", chunk(text="b")],
    ],
    ids=["nothing", "no end", "no DONE", "no finish", "text behind the finish", "behind DONE"],
)
def test_a_stream_that_is_not_whole_is_cut(frames: list[str]) -> None:
    with pytest.raises(CutError):
        taken(*frames)


def test_a_choice_that_never_ends_is_noticed_beside_one_that_does() -> None:
    with pytest.raises(CutError, match="choice 1"):
        taken(chunk(0, finish="stop"), chunk(1, text="a"), "data: [DONE]", choices=2)


def test_an_error_in_a_stream_is_told() -> None:
    with pytest.raises(ToldError) as caught:
        taken(chunk(text="a"), 'data: {"error": {"message": "m", "code": "engine_fault"}}')
    assert caught.value.error["code"] == "engine_fault"


def event(number: int, kind: str, **fields: Any) -> str:
    value = {"type": kind, "sequence_number": number} | fields
    return f"event: {kind}\ndata: {json.dumps(value)}"


def response(text: str) -> dict[str, Any]:
    item = {"type": "message", "content": [{"text": text}]}
    used = {"input_tokens": 5, "output_tokens": 2}
    return {"status": "completed", "output": [item], "usage": used}


def test_the_events_of_a_response_are_its_answer() -> None:
    done = event(1, "response.completed", response=response("ab"))
    found = taken(event(0, "response.output_text.delta", delta="ab"), done, path=RESPONSES)
    assert found == Answer((Choice("ab", "completed"),), (5, 2))


@pytest.mark.parametrize(
    "frames",
    [
        [event(0, "response.output_text.delta", delta="ab")],
        [event(1, "response.completed", response=response(""))],
        [event(0, "response.completed", response=response("ab"))],
    ],
    ids=["no end", "a number is missing", "text that no piece has"],
)
def test_events_that_are_not_whole_are_cut(frames: list[str]) -> None:
    with pytest.raises(CutError):
        taken(*frames, path=RESPONSES)


def logged(value: float) -> Answer:
    entry = {"tokens": ["a"], "token_logprobs": [value], "top_logprobs": [{"a": value, "b": -3.0}]}
    choice = {"index": 0, "text": "a", "logprobs": entry, "finish_reason": "length"}
    return whole_answer(TEXT, {"choices": [choice], "usage": USAGE})


@pytest.mark.parametrize(
    "other",
    [
        Answer((Choice("ac", "stop"),), (5, 2)),
        Answer((Choice("ab", "length"),), (5, 2)),
        Answer((Choice("ab", "stop"),), (6, 2)),
        Answer((Choice("ab", "stop"), Choice("ab", "stop")), (5, 2)),
        Answer((), (5, 2)),
    ],
    ids=["text", "finish", "tokens", "more", "fewer"],
)
def test_any_difference_is_one(other: Answer) -> None:
    assert Spread().difference(WHOLE, other) is not None


def test_log_probabilities_may_differ_by_rounding_alone() -> None:
    spread = Spread()
    assert spread.difference(logged(-1.0), logged(-1.0 + CLOSE / 2)) is None
    assert spread.most == pytest.approx(CLOSE / 2)
    assert "log probabilities" in str(spread.difference(logged(-1.0), logged(-1.0 + 2 * CLOSE)))


def test_what_no_stream_says_is_not_compared() -> None:
    assert Spread().difference(WHOLE, Answer(WHOLE.choices, None)) is None
