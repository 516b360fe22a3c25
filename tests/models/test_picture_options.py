"""What ``detail`` and options of a request mean to each family, on transformers' own processors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight.errors import MediaError
from firstlight.media import decode_image
from firstlight.media.decode import DecodedImage
from firstlight.models.loading import LoadedModel, load_model
from firstlight.models.picture_options import longest_edge, pixel_budget, split, tiles
from tests.conftest import TinyCheckpoint
from tests.media.files import noise


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    """The family's model; pytest runs a module's tests of one parameter together."""
    return load_model(tiny_checkpoint(request.param), dtype="float32")


def rows(model: LoadedModel, image: DecodedImage, detail: str, kwargs: object = None) -> int:
    """Rows of the picture, checked: as many placeholders, and as many from the tower."""
    processor = model.image_processor
    assert processor is not None
    chosen = processor.choices.resolve(detail, kwargs)
    artifact = processor.artifact(image, chosen=chosen)
    (encoded,) = model.adapter.media_rows([artifact])
    ids, token = model.adapter.expand(artifact), model.adapter.media_token_id
    assert token is not None
    assert ids.count(token) == len(encoded)
    return len(encoded)


LARGE = decode_image(noise(150, 100))


@pytest.mark.parametrize(
    "model", ["llava_next", "llava_onevision", "internvl", "idefics3", "smolvlm"], indirect=True
)
def test_a_family_of_tiles_makes_fewer_of_a_picture_of_low_detail(model: LoadedModel) -> None:
    found = {d: rows(model, LARGE, d) for d in ("auto", "low", "high", "original")}
    assert found["low"] < found["auto"] == found["high"] == found["original"]


@pytest.mark.parametrize("model", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"], indirect=True)
def test_the_budget_of_pixels_is_what_transformers_makes_of_it(model: LoadedModel) -> None:
    processor = model.image_processor
    assert processor is not None
    asked = {"min_pixels": 256, "max_pixels": 4096}
    chosen = processor.choices.resolve("auto", asked)
    artifact = processor.artifact(LARGE, chosen=chosen)
    theirs: Any = processor._processor
    expected = theirs(
        images=[LARGE.pixels],
        size={"shortest_edge": 256, "longest_edge": 4096},
        return_tensors="pt",
    )
    assert torch.equal(artifact.tensors["pixel_values"], expected["pixel_values"])
    assert rows(model, LARGE, "auto", asked) <= 4096 // 16**2 < rows(model, LARGE, "auto")


@pytest.mark.parametrize("model", ["qwen3_vl"], indirect=True)
def test_an_original_picture_is_not_scaled_down(model: LoadedModel) -> None:
    image = decode_image(noise(320, 320))
    assert rows(model, image, "auto") <= 16384 // 16**2
    assert rows(model, image, "original") == 20 * 20


@pytest.mark.parametrize("model", ["mistral3"], indirect=True)
def test_a_longest_side_can_be_asked_for(model: LoadedModel) -> None:
    cell = 16
    assert rows(model, LARGE, "auto", {"size": {"longest_edge": 2 * cell}}) == 2 * 2
    assert rows(model, LARGE, "auto") > 4


@pytest.mark.parametrize("model", ["internvl"], indirect=True)
def test_the_number_of_tiles_can_be_asked_for(model: LoadedModel) -> None:
    one = rows(model, LARGE, "low")
    assert rows(model, LARGE, "auto", {"max_patches": 2}) == 3 * one  # and a thumbnail
    assert rows(model, LARGE, "low", {"crop_to_patches": True}) == rows(model, LARGE, "auto")


@pytest.mark.parametrize("model", ["llava", "gemma3_vl"], indirect=True)
def test_a_family_of_one_size_takes_every_detail_without_effect(model: LoadedModel) -> None:
    processor = model.image_processor
    assert processor is not None
    assert [processor.choices.resolve(d) for d in ("low", "high", "original")] == [{}, {}, {}]
    with pytest.raises(MediaError, match=r"'do_pan_and_scan'.*accepted: none with this model"):
        processor.choices.resolve("auto", {"do_pan_and_scan": True})


def test_low_detail_of_qwen_is_256_rows_or_the_checkpoints_own_fewer() -> None:
    large = pixel_budget({"shortest_edge": 65536, "longest_edge": 16777216}, 32)
    assert large.resolve("low") == {"size": {"shortest_edge": 65536, "longest_edge": 512 * 512}}
    small = pixel_budget({"shortest_edge": 256, "longest_edge": 16384}, 16)
    assert small.resolve("low") == {}


def test_a_lower_upper_limit_lowers_the_lower_one_with_it() -> None:
    own = pixel_budget({"shortest_edge": 65536, "longest_edge": 1 << 24}, 32)
    assert own.resolve("auto", {"max_pixels": 4096}) == {
        "size": {"shortest_edge": 4096, "longest_edge": 4096}
    }


_QWEN = pixel_budget({"shortest_edge": 4096, "longest_edge": 1 << 20}, 32)


@pytest.mark.parametrize(
    ("options", "kwargs", "message"),
    [
        (_QWEN, {"max_pixels": 1 << 40}, "accepted: an int from 1024 to 67108864"),
        # It scales up: more than the checkpoint's own would fill the memory with nothing new.
        (_QWEN, {"min_pixels": (1 << 20) + 1}, "accepted: an int from 1 to 1048576"),
        (_QWEN, {"max_pixels": True}, "max_pixels = True"),
        (_QWEN, {"min_pixels": 5000, "max_pixels": 4000}, "5000 and at most 4000 .* contradict"),
        (_QWEN, {"size": {"longest_edge": 4096}}, "accepted: a mapping with 'shortest_edge'"),
        (_QWEN, {"patch_size": 7}, "accepted: min_pixels, max_pixels, size"),
        (longest_edge({"longest_edge": 64}, 16, 128), {"size": {"longest_edge": 129}}, "to 128"),
        (split({"longest_edge": 64}, 32, True), {"size": {"longest_edge": 65}}, "to 64"),
        (tiles(1, 12), {"max_patches": 65}, "accepted: an int from 1 to 64"),
        (tiles(1, 12), {"min_patches": 13}, "at least 13 and at most 12 tiles contradict"),
    ],
)
def test_what_would_not_suit_the_model_or_the_memory_is_refused(
    options: Any, kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(MediaError, match=message):
        options.resolve("auto", kwargs)


def test_a_processor_of_an_unknown_form_lets_choose_nothing() -> None:
    size = {"shortest_edge": None, "longest_edge": None, "height": 8, "width": 8}
    for options in (pixel_budget(size, 8), longest_edge(size, 8, 64), split(size, 8, True)):
        assert options.resolve("low") == {}


def test_the_docs_name_every_option_that_a_request_may_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pictures.md").read_text()
    size = {"shortest_edge": 1, "longest_edge": 64}
    families = (
        pixel_budget(size, 1),
        longest_edge(size, 1, 64),
        split(size, 1, True),
        tiles(1, 2),
    )
    cells = [line.split("|")[-2] for line in page.splitlines() if line.startswith("|")]
    named = [set(re.findall(r"`(\w+)`", cell)) for cell in cells]
    for options in families:
        assert set(options.knobs) in named
