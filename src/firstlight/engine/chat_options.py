"""What a chat template is told beside the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from firstlight.core.text import check_text
from firstlight.engine.refusal import wrong
from firstlight.errors import RequestError

RESERVED: Final = frozenset(
    {
        "messages", "conversation", "tools", "documents", "chat_template", "tokenize",
        "add_generation_prompt", "continue_final_message", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
        "sanitize_control_tokens", "raise_exception", "strftime_now", "bos_token", "eos_token",
        "unk_token", "pad_token", "sep_token", "cls_token", "mask_token",
        "additional_special_tokens",
    }
)  # fmt: skip
"""Names that a template gets from the engine and its tokenizer; no request may give them."""
_MOST: Final = 64
_WHERE: Final = "chat_template_kwargs"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How one conversation becomes a prompt.

    Attributes:
        tools: functions that the model may call, in OpenAI's form.
        template_kwargs: variables of the template by name, e.g. ``enable_thinking``.
        add_generation_prompt: the prompt ends where an answer of the assistant begins.
        continue_final_message: the answer goes on with the last message, which stays open; then
            ``add_generation_prompt`` must be false.

    Raises:
        RequestError: the two exclude each other, or a variable is the engine's own or no plain
            value; with its name and what is accepted.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "continue_final_message = true goes on with the last message, and "
                "add_generation_prompt = true begins a new one; accepted: one of the two"
            )
        kwargs = self.template_kwargs
        if not isinstance(kwargs, Mapping) or len(kwargs) > _MOST:
            raise wrong(_WHERE, kwargs, f"names and values, at most {_MOST}")
        for name, value in kwargs.items():
            if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
                accepted = "names of variables of the chat template, but for the engine's own"
                raise wrong(f"a name of {_WHERE}", name, accepted)
            _check(value, f"{_WHERE}.{name}")


def check_open(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise RequestError if the last message is none that an answer can go on with.

    Args:
        messages: as ``collect_media`` returns them.
    """
    last = messages[-1]
    if last["role"] != "assistant":
        raise RequestError(
            f"continue_final_message: the last message is the {last['role']}'s; accepted: one of "
            "the assistant"
        )
    if not any(part["type"] == "text" and part["text"].strip() for part in last["content"]):
        raise RequestError(
            "continue_final_message: the last message has no text that the answer could go on with"
        )


PLAIN: Final = ChatOptions()
"""Messages alone."""


def _check(value: object, where: str, depth: int = 8) -> None:
    """Only what JSON can say: a template calls what it gets."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            _check(key, f"a key of {where}", 0)
            _check(inner, f"{where}.{key}", depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for i, inner in enumerate(value):
            _check(inner, f"{where}[{i}]", depth - 1)
    elif value is not None and not isinstance(value, bool | int | float):
        raise wrong(
            where, value, "a string, a number, a boolean, null, or lists and objects of them"
        )
