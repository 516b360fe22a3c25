"""A chat template shows how its model writes calls."""

from __future__ import annotations

import pytest

from firstlight.engine.tools.formats import FORMATS, detect
from firstlight.server.settings import ServerSettings

TEMPLATES = {
    "hermes": r"{{ tools }}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>",
    "qwen3_coder": "{{ tools }}<tool_call><function=name><parameter=a>arguments",
    "llama3_json": '{% if tools %}Answer with {"name": ..., "parameters": ...}{% endif %}',
    "mistral": "{{ tools }}[TOOL_CALLS] [...]",
    "mistral_args": "{{ tools }}[TOOL_CALLS]name[ARGS]{...}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_format_is_that_of_the_template(name: str) -> None:
    assert detect(TEMPLATES[name]) is FORMATS[name]


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{{ messages }}",
        "{{ messages }}<tool_call>arguments",
        "{{ tools }}<function=name>{...}</function> parameters",
        "{{ tools }}<tool_call>name<arg_key>a</arg_key> arguments",
        "{{ tools }} in a way of its own",
    ],
)
def test_a_template_that_shows_no_known_way_has_no_format(template: str | None) -> None:
    assert detect(template) is None


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_set(name: str) -> None:
    assert ServerSettings(tool_call_parser=name).tool_call_parser == name


def test_a_setting_says_it_otherwise() -> None:
    assert detect(TEMPLATES["hermes"], "llama3_json") is FORMATS["llama3_json"]
    assert detect(TEMPLATES["hermes"], "none") is None


@pytest.mark.parametrize(("name", "size"), [("mistral", 9), ("mistral_args", 9), ("hermes", 29)])
def test_calls_have_names_of_the_length_that_templates_take(name: str, size: int) -> None:
    ids = {FORMATS[name].new_id() for _ in range(20)}
    assert {len(i) for i in ids} == {size}
    assert len(ids) == 20
