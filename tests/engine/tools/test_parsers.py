"""Calls are found in what models write, however their text is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.engine.tools.parsers import CallReader, HermesReader, LlamaReader, MistralReader
from firstlight.engine.tools.pieces import Arguments, CallBegin, Content, Parser, Piece, Reasoning
from firstlight.engine.tools.reasoning import PlainReader, ReasoningReader

Calls = list[tuple[str, str]]
Said = tuple[str, Calls]


def said(pieces: Sequence[Piece]) -> Said:
    """The content, and each call's name and arguments."""
    content = "".join(p.text for p in pieces if isinstance(p, Content))
    calls: Calls = []
    for piece in pieces:
        if isinstance(piece, CallBegin):
            assert piece.index == len(calls)
            calls.append((piece.name, ""))
        elif isinstance(piece, Arguments):
            name, text = calls[piece.index]
            calls[piece.index] = name, text + piece.text
    return content, calls


def read(reader: Parser, pieces: Sequence[str]) -> list[Piece]:
    return [found for text in pieces for found in reader.push(text)] + reader.finish()


def cut(text: str, places: Sequence[int]) -> list[str]:
    edges = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


H, L, M = HermesReader, LlamaReader, MistralReader
ARGS = '{"city": "Rome {} \\"</tool_call>", "n": [1, {"a": null}]}'
CASES: list[tuple[Callable[[], CallReader], str, Said]] = [
    (H, "Hello < there.", ("Hello < there.", [])),
    (H, "Hello \n", ("Hello \n", [])),
    (H, f'<tool_call>\n{{"name": "f", "arguments": {ARGS}}}\n</tool_call>', ("", [("f", ARGS)])),
    (H, f'Let me see.\n\n<tool_call>{{"arguments": {ARGS}, "name": "f"}}</tool_call>\n',
     ("Let me see.", [("f", ARGS)])),
    (H, '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>'
     '{"name": "g", "arguments": {"a": 1}}</tool_call>', ("", [("f", "{}"), ("g", '{"a": 1}')])),
    (H, '<tool_call>{"name": "f", "arguments": {}}</tool_call> Done.', (" Done.", [("f", "{}")])),
    (H, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
     ("", [("f", '{"a": 1}')])),
    (H, '<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
    (H, "<tool_call>no object</tool_call>", ("<tool_call>no object</tool_call>", [])),
    (H, '<tool_call>{"nam": 1}</tool_call>', ('<tool_call>{"nam": 1}</tool_call>', [])),
    (H, '<tool_call>{"name": "f', ('<tool_call>{"name": "f', [])),
    (H, '<tool_call>{"name": "f", "arguments": {"a": "b', ("", [("f", '{"a": "b')])),
    (H, "a <tool_cal", ("a <tool_cal", [])),
    (L, f'{{"name": "f", "parameters": {ARGS}}}', ("", [("f", ARGS)])),
    (L, f'<|python_tag|>{{"name": "f", "parameters": {ARGS}}}', ("", [("f", ARGS)])),
    (L, '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"a": 1}}',
     ("", [("f", "{}"), ("g", '{"a": 1}')])),
    (L, '{"type": "function", "name": "f", "parameters": {}}', ("", [("f", "{}")])),
    (L, "It is {1}.", ("It is {1}.", [])),
    (L, '{"shape": "circle"}', ('{"shape": "circle"}', [])),
    (L, "<|python_tag|>print(1)", ("<|python_tag|>print(1)", [])),
    (M, f'[TOOL_CALLS][{{"name": "f", "arguments": {ARGS}}}]', ("", [("f", ARGS)])),
    (M, '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]',
     ("", [("f", "{}"), ("g", "{}")])),
    (M, f"I look. [TOOL_CALLS]f[ARGS]{ARGS}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{{}}",
     ("I look.", [("f", ARGS), ("g", "{}")])),
    (M, f"[TOOL_CALLS]f{ARGS}", ("", [("f", ARGS)])),
    (M, "[1, 2] is a list", ("[1, 2] is a list", [])),
    (M, "[TOOL_CALLS]f", ("[TOOL_CALLS]f", [])),
    (M, "[TOOL_CALLS][{}]", ("[TOOL_CALLS][{}]", [])),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text", "expected"), CASES, ids=[c[1][:40] for c in CASES])
def test_calls_and_content_are_told_apart(
    make: Callable[[], CallReader], text: str, expected: Said
) -> None:
    assert said(read(make(), [text])) == expected
    assert said(read(make(), list(text))) == expected


@given(st.sampled_from(CASES), st.lists(st.integers(0, 10_000), max_size=6))
def test_cuts_change_nothing(
    case: tuple[Callable[[], CallReader], str, Said], places: list[int]
) -> None:
    make, text, expected = case
    assert said(read(make(), cut(text, places))) == expected


@given(
    st.sampled_from([H, L, M]),
    st.text(alphabet='<tool_cal>/[TOOL_CALLS]ARG{}":, \n\\', max_size=60),
    st.lists(st.integers(0, 100), max_size=4),
)
def test_no_text_breaks_a_reader(
    make: Callable[[], CallReader], text: str, places: list[int]
) -> None:
    whole = said(read(make(), [text]))
    assert said(read(make(), cut(text, places))) == whole
    if not whole[1]:
        assert whole[0] == text


@pytest.mark.parametrize(
    ("make", "text"), [(c[0], c[1]) for c in CASES if len(c[2][1]) == 2], ids=str
)
def test_one_call_alone_is_read_where_several_are_not_wanted(
    make: Callable[..., CallReader], text: str
) -> None:
    content, calls = said(read(make(False), list(text + " and more")))
    assert len(calls) == 1
    assert "more" not in content


def test_arguments_come_as_they_are_written() -> None:
    reader = HermesReader()
    assert reader.push('<tool_call>{"name": "f", "argu') == [CallBegin(0, "f")]
    assert reader.push('ments": {"a": "long') == [Arguments(0, '{"a": "long')]
    assert reader.push(' text"') == [Arguments(0, ' text"')]
    assert reader.push("}}") == [Arguments(0, "}")]
    assert json.loads('{"a": "long text"}')


THOUGHTS: list[tuple[bool, str, str, str]] = [
    (False, "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
    (True, "Hm. <b>\n</think>\n\nYes.", "Hm. <b>", "Yes."),
    (True, "<think>Hm.</think>Yes.", "Hm.", "Yes."),
    (False, "Yes <think> no", "", "Yes <think> no"),
    (False, "  Yes", "", "  Yes"),
    (True, "cut off </thi", "cut off </thi", ""),
    (False, "<think>cut off", "cut off", ""),
    (True, "\n</think>Yes.\n", "", "Yes.\n"),
    (False, "<think></think> a </think>", "", "a </think>"),
]


@pytest.mark.parametrize("case", THOUGHTS, ids=[t[1][:30] for t in THOUGHTS])
@given(places=st.lists(st.integers(0, 100), max_size=6))
def test_thoughts_are_told_from_the_answer(
    case: tuple[bool, str, str, str], places: list[int]
) -> None:
    thinking, text, thoughts, answer = case
    pieces = read(ReasoningReader(PlainReader(), thinking=thinking), cut(text, places))
    assert "".join(p.text for p in pieces if isinstance(p, Reasoning)) == thoughts
    assert said(pieces) == (answer, [])


def test_calls_may_follow_thoughts() -> None:
    text = 'I <tool_call>.</think>\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    pieces = read(ReasoningReader(HermesReader(), thinking=True), list(text))
    assert said(pieces) == ("", [("f", "{}")])
