"""What replaces a placeholder is what transformers' processors would write there."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from PIL import Image
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, VISION_FAMILIES

from firstlight.models.loading import LoadedModel
from tests.conftest import TinyCheckpoint
from tests.models.dense import artifact_of, load
from tests.pictures import picture

SIZES = [
    (48, 32),
    (32, 48),
    (33, 31),
    (64, 64),
    (200, 40),
    (40, 200),
    (17, 90),
    (97, 61),
]

# Not all of these classes can be built without torchvision (they want a video processor), so the
# method under comparison is called on a bare object with the attributes that it reads.
PROCESSORS = {
    "llava": ("llava", "LlavaProcessor"),
    "llava_next": ("llava_next", "LlavaNextProcessor"),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionProcessor"),
    "internvl": ("internvl", "InternVLProcessor"),
    "idefics3": ("idefics3", "Idefics3Processor"),
    "smolvlm": ("smolvlm", "SmolVLMProcessor"),
}


def processor_text(loaded: LoadedModel, family: str, image: Image.Image) -> str:
    """What transformers' processor of the family puts in a placeholder's place."""
    from transformers import AutoImageProcessor

    module, name = PROCESSORS[family]
    cls: Any = getattr(import_module(f"transformers.models.{module}.processing_{module}"), name)
    extras = json.loads((loaded.path / "processor_config.json").read_text())
    image_processor = AutoImageProcessor.from_pretrained(loaded.path, backend="pil")
    stand_in = cls.__new__(cls)
    tokenizer = loaded.tokenizer
    attributes = {
        "image_processor": image_processor,
        "image_token": loaded.adapter.placeholder,
        "vision_aspect_ratio": getattr(loaded.adapter.config, "vision_aspect_ratio", None),
        "fake_image_token": "<fake_token_around_image>",
        "global_image_tag": "<global-img>",
        "global_image_token": "<global-img>",
        "start_image_token": getattr(tokenizer, "start_image_token", None),
        "end_image_token": getattr(tokenizer, "end_image_token", None),
    } | extras
    for key, value in attributes.items():
        object.__setattr__(stand_in, key, value)
    options = dict(loaded.adapter.processor_options)
    made = image_processor(images=[image], return_tensors="pt", **options)
    replace: Callable[..., str] = cls.replace_image_token
    return replace(stand_in, made, 0)


@pytest.mark.parametrize("family", PROCESSORS)
def test_expansion_is_what_the_processor_writes(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint(family))
    for width, height in SIZES:
        image = picture(width, height)
        expected = loaded.tokenizer.encode(
            processor_text(loaded, family, image), add_special_tokens=False
        )
        assert loaded.adapter.expand(artifact_of(loaded, image)) == expected, (width, height)


@pytest.mark.parametrize(("family", "cell"), [("mistral3", 16), ("pixtral", 8)])
def test_a_pixtral_image_ends_each_line_with_a_break_and_the_last_with_an_end(
    family: str, cell: int, tiny_checkpoint: TinyCheckpoint
) -> None:
    # Its processor cannot be imported without torchvision; this is the rule of its documentation.
    loaded = load(tiny_checkpoint(family))
    for width, height in SIZES:
        artifact = artifact_of(loaded, picture(width, height))
        h, w = artifact.tensors["image_sizes"][0].tolist()
        tokens = (["[IMG]"] * (w // cell) + ["[IMG_BREAK]"]) * (h // cell)
        tokens[-1] = "[IMG_END]"
        ids = loaded.adapter.expand(artifact)
        assert loaded.tokenizer.convert_ids_to_tokens(ids) == tokens


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_a_qwen_image_takes_one_token_per_merged_patch(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint(family))
    for width, height in SIZES:
        artifact = artifact_of(loaded, picture(width, height))
        patches = artifact.tensors["pixel_values"].shape[0]
        assert loaded.adapter.expand(artifact) == [loaded.adapter.media_token_id] * (patches // 4)


@pytest.mark.parametrize("family", [*VISION_FAMILIES, *PREFIX_LM_FAMILIES])
def test_every_image_size_gives_as_many_rows_as_places(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint(family))
    adapter = loaded.adapter
    for width, height in SIZES:
        artifact = artifact_of(loaded, picture(width, height))
        (rows,) = adapter.media_rows([artifact])
        places = adapter.expand(artifact).count(adapter.media_token_id or 0)
        assert rows.shape == (places, adapter.contract.input_embeds_hidden_size), (width, height)
