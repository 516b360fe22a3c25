"""What is read out of one stream, and what each way to fail is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight.bench.answer import Answer
from tests.bench.fake_server import DONE, FakeServer, Script, answer, chunk, usage
from tests.bench.loads import load

ERROR = json.dumps({"error": {"message": "too much waits", "code": "queue_full", "type": "x"}})


def asked(script: Script, status: int = 200, **settings: Any) -> Answer:
    """The answer to one request that gets this."""
    server = FakeServer(script=lambda n: script, status=lambda n: status)
    (found,) = load(server, num_requests=1, **settings).answers
    return found


def test_an_answer_has_the_servers_counts_and_a_time_for_each_piece() -> None:
    found = asked(answer("Red", " circle", ".", tokens=5))
    assert found.error is None
    assert (found.prompt_tokens, found.completion_tokens) == (11, 5)
    assert (found.cached_tokens, found.image_tokens) == (4, 2)
    assert (len(found.pieces), found.counted, found.finish_reason) == (3, True, "stop")
    assert found.due == found.sent < found.pieces[0] <= found.pieces[2] <= found.ended


def test_the_chunk_with_the_role_is_no_first_token() -> None:
    found = asked([chunk(""), 0.1, chunk("a"), chunk(finish="length"), usage(1, 1), DONE])
    assert found.ttft > 0.05
    assert found.gaps == []


def test_a_pause_within_an_answer_is_in_its_gaps() -> None:
    found = asked([chunk("a"), chunk("b"), 0.2, chunk("c"), chunk(finish="stop"), usage(1, 3)])
    first, second = found.gaps
    assert first < 0.1 < second


def test_thoughts_and_calls_of_tools_are_pieces_too() -> None:
    def piece(delta: dict[str, object]) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return f"data: {json.dumps({'choices': [choice]})}\n\n"

    deltas: list[dict[str, object]] = [
        {"reasoning_content": "Well"},
        {"tool_calls": [{"index": 0}]},
    ]
    found = asked([*map(piece, deltas), chunk(finish="tool_calls"), usage(1, 2), DONE])
    assert len(found.pieces) == 2


def test_an_event_that_comes_in_two_parts_is_one() -> None:
    whole = chunk("a")
    found = asked([whole[:9], 0.02, whole[9:], chunk(finish="stop"), usage(1, 1), DONE])
    assert (found.error, len(found.pieces)) == (None, 1)


def test_a_server_that_does_not_count_has_its_pieces_counted() -> None:
    found = asked([chunk("a"), chunk("b"), chunk(finish="stop"), DONE])
    assert (found.error, found.completion_tokens, found.counted) == (None, 2, False)


def test_an_answer_without_text_has_its_first_token_at_its_end() -> None:
    found = asked([0.05, chunk(""), chunk(finish="stop"), usage(3, 1), DONE])
    assert (found.error, found.pieces) == (None, ())
    assert found.ttft == found.e2e >= 0.04
    assert found.tpot is None


@pytest.mark.parametrize(
    ("script", "status", "kind", "said"),
    [
        ([ERROR], 429, "HTTP 429 queue_full", "too much waits"),
        (['{"detail": "no"}'], 500, "HTTP 500", "no"),
        ([chunk("a"), f"data: {ERROR}\n\n"], 200, "in the stream: queue_full", "too much waits"),
        ([chunk("a"), 0.01, None], 200, "connection (RemoteProtocolError)", ""),
        ([None], 200, "connection (RemoteProtocolError)", ""),
        ([chunk("a"), usage(1, 1), DONE], 200, "cut off", "after 1 pieces"),
        ([], 200, "cut off", "after 0 pieces"),
        (["data: nonsense\n\n"], 200, "no valid chunk", ""),
        (["data: 5\n\n"], 200, "no valid chunk", ""),
    ],
)
def test_each_way_to_fail_is_an_error_of_its_kind(
    script: Script, status: int, kind: str, said: str
) -> None:
    found = asked(script, status)
    assert found.error == kind
    assert said in found.detail


def test_silence_is_an_error_after_the_timeout() -> None:
    found = asked([chunk("a"), 1.0, chunk("b")], timeout=0.1)
    assert found.error == "timeout (ReadTimeout)"
    assert 0.09 < found.e2e < 0.8
