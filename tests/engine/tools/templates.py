"""Tiny checkpoints whose chat templates know tools, in the families' ways."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

_CONTENT: Final = """{% macro text(m) %}{% if m.content is string %}{{ m.content }}{% else %}\
{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"""
_MESSAGES: Final = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ text(m) }}{% for c in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>
{% endfor %}"""
_END: Final = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

HERMES: Final = (
    _CONTENT
    + """{% if tools %}<|im_start|>system
Functions:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}"""
    + _MESSAGES.replace(
        "CALL",
        '<tool_call>{"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}</tool_call>",
    )
    + _END
)
LLAMA: Final = (
    HERMES.replace('"arguments"', '"parameters"')
    .replace("<tool_call>", "")
    .replace("</tool_call>", "")
)
MISTRAL: Final = HERMES.replace("<tool_call>", "[TOOL_CALLS][").replace("</tool_call>", "]")
CODER: Final = HERMES.replace(
    '{"name": ..., "arguments": ...}', "<function=...><parameter=...>...</parameter></function>"
)
THINKING: Final = HERMES.replace(
    "<|im_start|>assistant\n{% endif %}",
    "<|im_start|>assistant\n<think>\n{% endif %}{# ends with </think> #}",
)


def with_template(checkpoint: Path, folder: Path, template: str) -> Path:
    """A copy of a checkpoint with another chat template."""
    shutil.copytree(checkpoint, folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder
