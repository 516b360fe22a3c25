"""A text that the chat template leaves out is refused; what it does with others is its business."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.engine.prompt import PromptBuilder, collect_media
from firstlight.errors import RequestError
from tests.engine.tokenizers import byte_level


class NoPictures:
    """The layout of a text-only model."""

    placeholder = placeholder_text = video_placeholder = ""
    media_token_id = video_token_id = None

    def video_text(self, artifact: object) -> str:
        """Never called."""
        raise AssertionError

    def expand(self, artifact: object) -> list[int]:
        """Never called."""
        raise AssertionError


def _ids(template: str, messages: list[dict[str, Any]]) -> list[int]:
    builder = PromptBuilder(byte_level("text"), template, NoPictures())
    return builder.chat(collect_media(messages)[0]).ids


_NO_SYSTEM = (
    "a: {% for m in messages if m.role != 'system' %}{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
)
_FIRST_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.content | trim }}"
    "{% endif %}{% endfor %}"
)
_AFTER_A_CALL = (
    "{% for m in messages %}{% if m.role != 'tool' or messages[loop.index0 - 1].tool_calls %}"
    "{{ m.content }}{% endif %}{% endfor %}"
)


def _turns(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in turns]


@pytest.mark.parametrize(
    ("template", "messages", "place"),
    [
        (_NO_SYSTEM, _turns(("system", "be brief"), ("user", "b")), "messages[0]"),
        (_NO_SYSTEM, _turns(("system", "a"), ("user", "b")), "messages[0]"),
        (_NO_SYSTEM, _turns(("user", "be brief"), ("system", "be brief")), "messages[1]"),
        (_NO_SYSTEM, _turns(("developer", "be brief"), ("user", "b")), "messages[0]"),
        (_FIRST_SYSTEM, _turns(("user", "b"), ("system", "be brief")), "messages[1]"),
        (_AFTER_A_CALL, _turns(("user", "b"), ("tool", "42")), "messages[1]"),
    ],
)
def test_a_text_that_the_template_leaves_out_is_refused_by_its_place(
    template: str, messages: list[dict[str, Any]], place: str
) -> None:
    with pytest.raises(RequestError) as caught:
        _ids(template, messages)
    role = messages[int(place[-2])]["role"]
    assert str(caught.value).startswith(f"{place}.content would be lost")
    assert str(caught.value).endswith(f"role {role!r}")


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (_NO_SYSTEM, _turns(("system", " \n"), ("user", "b"))),
        (_FIRST_SYSTEM, _turns(("system", "be brief\n"), ("user", " b "))),
        (
            _AFTER_A_CALL,
            [
                {"role": "user", "content": "b"},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
                {"role": "tool", "content": "42"},
            ],
        ),
        (
            "{% for m in messages if not m.tool_calls %}{{ m.content }}{% endfor %}",
            [{"role": "assistant", "content": "I call f.", "tool_calls": [{"function": {}}]}],
        ),
        ("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", _turns(("user", '"a"\n'))),
    ],
)
def test_a_text_that_the_template_reads_in_its_own_way_is_taken(
    template: str, messages: list[dict[str, Any]]
) -> None:
    tokenizer = byte_level("text")
    ids = _ids(template, messages)
    expected = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert tokenizer.decode(ids) == expected
