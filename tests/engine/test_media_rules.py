"""What the configuration says of the pictures of every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.engine.media_rules import MediaRules
from firstlight.engine.messages import ImageSource, MediaSource
from firstlight.engine.video_parts import VideoSource
from firstlight.errors import ConfigError, MediaError
from tests.conftest import TinyCheckpoint
from tests.pictures import picture

PARAMS = SamplingParams(temperature=0, max_tokens=2)
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 1,
    "eager": True,
    "max_context": 256,
}
TEMPLATE = (
    "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|>"
    "<|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
)


def asked(*sides: int) -> list[dict[str, Any]]:
    parts = [{"type": "image", "image": picture(side, side)} for side in sides]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "what?"}]}]


@pytest.mark.parametrize(
    ("limits", "images", "videos", "refused"),
    [
        ({}, 9, 9, None),
        ({"image": 2}, 2, 9, None),
        ({"image": 2}, 3, 0, "3 pictures; this server takes at most 2"),
        ({"video": 0}, 9, 0, None),
        ({"video": 0}, 0, 1, "1 videos; this server takes at most 0"),
    ],
)
def test_a_kind_that_is_named_has_a_limit(
    limits: dict[str, int], images: int, videos: int, refused: str | None
) -> None:
    sources: list[MediaSource] = [ImageSource("a") for _ in range(images)]
    sources += [VideoSource("a") for _ in range(videos)]
    rules = MediaRules(limits)
    if refused is None:
        rules.check(sources)
        return
    with pytest.raises(MediaError, match=refused):
        rules.check(sources)


def test_a_requests_own_options_go_before_those_of_all() -> None:
    rules = MediaRules(options={"a": 1, "b": 2})
    assert rules.asked({"b": 3}) == {"a": 1, "b": 3}
    assert rules.asked(None) == {"a": 1, "b": 2}
    assert MediaRules().asked(None) is None


def test_an_engine_keeps_to_them(tiny_checkpoint: TinyCheckpoint) -> None:
    path = tiny_checkpoint("qwen3_vl")
    usual = LLM(path, **SETTINGS)
    held = LLM(
        path, limit_mm_per_prompt={"image": 1}, mm_processor_kwargs={"max_pixels": 4096}, **SETTINGS
    )
    with usual, held:
        rows = usual.chat(asked(96), PARAMS).usage.image_tokens
        small = usual.chat(asked(96), PARAMS, mm_processor_kwargs={"max_pixels": 4096})
        assert held.chat(asked(96), PARAMS).usage.image_tokens == small.usage.image_tokens < rows
        own = held.chat(asked(96), PARAMS, mm_processor_kwargs={"max_pixels": 1 << 20})
        assert own.usage.image_tokens == rows
        with pytest.raises(MediaError, match="at most 1"):
            held.chat(asked(32, 32), PARAMS)


def test_options_that_the_processor_does_not_take_end_the_start(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    with pytest.raises(ConfigError, match="no_such"):
        LLM(tiny_checkpoint("qwen3_vl"), mm_processor_kwargs={"no_such": 1}, **SETTINGS)


def test_a_template_of_ones_own_makes_the_prompt(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(TEMPLATE)
    with LLM(tiny_checkpoint("qwen3_vl"), chat_template=path, **SETTINGS) as llm:
        chat = llm.chat(asked(32), PARAMS)
        text = "<|vision_start|><|image_pad|><|vision_end|>what?"
        raw = llm.generate(text, PARAMS, images=[picture(32, 32)])
    assert chat.usage.prompt_tokens == raw.usage.prompt_tokens
    assert chat.token_ids == raw.token_ids


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), (" \n", "is empty"), ("{% if %}", "is no Jinja template")],
)
def test_what_is_no_template_ends_the_start(
    text: str | None, message: str, tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jinja"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"chat_template = .*{message}"):
        LLM(tiny_checkpoint("qwen3_vl"), chat_template=path, **SETTINGS)
