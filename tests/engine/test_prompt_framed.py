"""Families whose processor writes ordinary text around a picture: it is tokenised in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image

from firstlight.engine.prompt import Prompt, PromptBuilder, collect_media
from firstlight.errors import RequestError
from firstlight.media import Artifact, decode_image
from firstlight.models.loading import LoadedModel, load_model
from tests.conftest import TinyCheckpoint
from tests.pictures import picture

Part = str | Image.Image
SMALL, LARGE = picture(48, 32, seed=1), picture(40, 72, seed=2)


@pytest.fixture(scope="module")
def loaded(tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    return load_model(tiny_checkpoint("gemma3_vl"), dtype="float32")


def artifact_of(loaded: LoadedModel, image: Image.Image) -> Artifact:
    assert loaded.image_processor is not None
    return loaded.image_processor.artifact(decode_image(image))


def content(parts: Sequence[Part]) -> list[dict[str, object]]:
    return [
        {"type": "text", "text": p} if isinstance(p, str) else {"type": "image", "image": p}
        for p in parts
    ]


def built(loaded: LoadedModel, parts: Sequence[Part]) -> Prompt:
    builder = PromptBuilder(loaded.tokenizer, loaded.chat_template, loaded.adapter)
    messages, _ = collect_media([{"role": "user", "content": content(parts)}])
    artifacts = [artifact_of(loaded, p) for p in parts if not isinstance(p, str)]
    return builder.chat(messages, artifacts)


def processor(loaded: LoadedModel) -> Any:
    """transformers' own processor of the checkpoint."""
    from transformers import AutoImageProcessor
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    images = AutoImageProcessor.from_pretrained(loaded.path, backend="pil")
    return Gemma3Processor(images, loaded.tokenizer, image_seq_length=16)


@pytest.mark.parametrize(
    "parts",
    [
        [SMALL, "What is it?"],
        ["What is it?", LARGE],
        ["a\n", SMALL, "\nb\n\n", LARGE, "\n\ncompare"],
        [SMALL, LARGE, "Compare."],
        ["What is this?"],
    ],
    ids=["first", "last", "between newlines", "adjacent", "text"],
)
def test_ids_and_rows_are_those_of_the_models_own_processor(
    loaded: LoadedModel, parts: list[Part]
) -> None:
    prompt = built(loaded, parts)
    text = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": content(parts)}], tokenize=False, add_generation_prompt=True
    )
    images = [p for p in parts if not isinstance(p, str)]
    made = processor(loaded)(images=images or None, text=text, add_special_tokens=False)
    assert prompt.ids == list(made["input_ids"][0])
    inside = [p for s in prompt.spans for p in range(s.start, s.end)]
    assert inside == [p for p, kind in enumerate(made["token_type_ids"][0]) if kind == 1]


@pytest.mark.parametrize("typed", ["<start_of_image>", "<image_soft_token>", "<end_of_image>"])
def test_a_typed_token_of_the_frame_is_text(loaded: LoadedModel, typed: str) -> None:
    prompt = built(loaded, [SMALL, f"what does {typed} mean?"])
    without = built(loaded, [SMALL, "what does it mean?"])
    token = loaded.tokenizer.convert_tokens_to_ids(typed)
    assert prompt.ids.count(token) == without.ids.count(token)
    assert typed in loaded.tokenizer.decode(prompt.ids[prompt.spans[0].end + 1 :])


def test_a_raw_prompt_is_framed_like_a_chat(loaded: LoadedModel) -> None:
    chat = built(loaded, [SMALL, "What is it?"])
    builder = PromptBuilder(loaded.tokenizer, None, loaded.adapter)
    raw = builder.text(
        "<bos><start_of_turn>user\n<start_of_image>What is it?<end_of_turn>\n"
        "<start_of_turn>model\n",
        [artifact_of(loaded, SMALL)],
    )
    assert (raw.ids, raw.spans) == (chat.ids, chat.spans)


def test_a_raw_prompt_with_too_few_pictures_names_the_placeholder(loaded: LoadedModel) -> None:
    builder = PromptBuilder(loaded.tokenizer, None, loaded.adapter)
    message = re.escape("holds 2 placeholders '<start_of_image>', but 1 pictures are given")
    with pytest.raises(RequestError, match=message):
        builder.text("<start_of_image>a<start_of_image>b", [artifact_of(loaded, SMALL)])
