"""Calls whose arguments stand in tags of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight.engine.tools.coder import CoderReader, call_rule
from firstlight.engine.tools.pieces import Arguments, CallBegin, Content, Piece
from firstlight.errors import RequestError

SCHEMAS: dict[str, Any] = {
    "weather": {
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "raw": {}},
    },
    "now": {},
}
CALL = """<tool_call>
<function=weather>
<parameter=city>
Rome "x"
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>"""


def read(text: str, size: int, *, several: bool = True) -> list[Piece]:
    """What a reader says of a text that comes in pieces of that size."""
    reader = CoderReader(several, SCHEMAS)
    pieces: list[Piece] = []
    for at in range(0, len(text), size):
        pieces += reader.push(text[at : at + size])
    return pieces + reader.finish()


def told(pieces: list[Piece]) -> tuple[str, list[tuple[str, str]]]:
    """The content, and the name and arguments of each call."""
    content, calls = "", []
    for piece in pieces:
        match piece:
            case Content(text):
                content += text
            case CallBegin(_, name):
                calls.append([name, ""])
            case Arguments(index, text):
                calls[index][1] += text
    return content, [(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_calls_and_the_text_before_them_are_told_apart_however_the_text_is_cut(size: int) -> None:
    now = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    content, calls = told(read(f"I look.\n{CALL}\n{now}\n", size))
    assert content == "I look."
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("weather", {"city": 'Rome "x"', "days": 3}),
        ("now", {}),
    ]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("city", "5", "5"),
        ("city", " two\nlines ", " two\nlines "),
        ("days", "5", 5),
        ("days", "five", "five"),
        ("raw", '{"a": [1]}', {"a": [1]}),
        ("raw", "NaN", "NaN"),
        ("unheard_of", "true", True),
    ],
)
def test_a_value_is_text_where_the_schema_says_so_and_else_json(
    name: str, text: str, value: Any
) -> None:
    call = f"<tool_call><function=weather><parameter={name}>\n{text}\n</parameter></function>"
    ((_, arguments),) = told(read(call, 3))[1]
    assert json.loads(arguments) == {name: value}


def test_of_an_argument_that_is_given_twice_the_first_counts() -> None:
    one, two = (f"<parameter=days>{i}</parameter>" for i in (1, 2))
    ((_, arguments),) = told(read(f"<tool_call><function=weather>{one}{two}</function>", 5))[1]
    assert json.loads(arguments) == {"days": 1}


@pytest.mark.parametrize("text", ["<tool_call>\nHello", "<tool_call", "a <function=weather> b"])
@pytest.mark.parametrize("size", [1, 100])
def test_what_only_looks_like_a_call_is_content(text: str, size: int) -> None:
    assert told(read(text, size)) == (text, [])


def test_a_call_that_is_cut_has_the_arguments_that_were_whole() -> None:
    ((name, arguments),) = told(read(CALL[: CALL.index("3")], 4))[1]
    assert (name, arguments) == ("weather", '{"city": "Rome \\"x\\""')


def test_all_behind_the_first_call_is_dropped_where_there_may_be_one() -> None:
    assert len(told(read(CALL + CALL, 9, several=False))[1]) == 1
    assert len(told(read(CALL + CALL, 9))[1]) == 2


def test_a_text_with_rules_of_its_own_cannot_be_enforced() -> None:
    schema = {"properties": {"city": {"type": "string", "pattern": "^R"}}}
    with pytest.raises(RequestError, match=r"^tools\[0\]\.properties\.city: pattern cannot"):
        call_rule("call_0", "weather", json.dumps(schema), json.dumps, "tools[0]")
