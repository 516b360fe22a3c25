"""One image in, that image's tensors out, whatever its size, channels or neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from PIL import Image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from firstlight.errors import MediaError
from firstlight.media import Artifact, DecodedImage, ImageLimits, ImageProcessor, decode_image
from tests.media.files import encoded, noise

# The sizes that confuse code which guesses where the channels are.
ODD_SIZES = [(1, 1), (1, 500), (500, 1), (22, 3), (3, 22), (3, 3), (26, 28), (500, 19)]


def _qwen(**options: Any) -> ImageProcessor:
    return ImageProcessor(Qwen2VLImageProcessorPil(**options))


def _decoded(width: int, height: int) -> DecodedImage:
    return decode_image(noise(width, height), ImageLimits(max_side_ratio=None))


def test_the_tensors_are_those_of_the_processor_for_this_image() -> None:
    processor = Qwen2VLImageProcessorPil()
    image = _decoded(100, 60)
    artifact = ImageProcessor(processor).artifact(image)
    expected = processor(images=[image.pixels], return_tensors="pt")
    assert set(artifact.tensors) == set(expected)
    for name, tensor in artifact.tensors.items():
        assert torch.equal(tensor, expected[name])
    assert artifact.size == (100, 60)
    assert artifact.digest == image.digest


@pytest.mark.parametrize("size", [*(s for s in ODD_SIZES if max(s) / min(s) <= 200), (1000, 5)])
def test_qwen_takes_odd_sizes_and_its_patches_match_its_grid(size: tuple[int, int]) -> None:
    artifact = _qwen().artifact(_decoded(*size))
    assert artifact.tensors["pixel_values"].shape[0] == int(
        artifact.tensors["image_grid_thw"].prod()
    )


@pytest.mark.parametrize("size", [(1093, 5), (5602, 28), (1, 500), (500, 1)])
def test_a_ratio_over_the_models_limit_is_refused_with_both_numbers(size: tuple[int, int]) -> None:
    ratio = max(size) / min(size)
    with pytest.raises(MediaError, match=rf"{size[0]} x {size[1]}.*200.*{ratio:g}"):
        _qwen().artifact(_decoded(*size))


@pytest.mark.parametrize("size", ODD_SIZES)
@pytest.mark.parametrize("kind", [SiglipImageProcessorPil, LlavaOnevisionImageProcessorPil])
def test_other_processors_take_odd_sizes(kind: Any, size: tuple[int, int]) -> None:
    pixels = ImageProcessor(kind()).artifact(_decoded(*size)).tensors["pixel_values"]
    assert pixels.shape[-3] == 3


def test_channels_are_told_from_sides_of_three_pixels() -> None:
    """A grey picture 3 pixels high gives three equal channels, not three lines of one."""
    image = decode_image(Image.linear_gradient("L").resize((40, 3)))
    normalised = SiglipImageProcessorPil(image_mean=[0, 0, 0], image_std=[1, 1, 1])
    pixels = ImageProcessor(normalised).artifact(image).tensors["pixel_values"]
    assert torch.equal(pixels[0, 0], pixels[0, 1])
    assert torch.equal(pixels[0, 0], pixels[0, 2])
    lines = pixels[0, 0].mean(-1)
    assert lines[0] < 0.3 < 0.7 < lines[-1]


@pytest.mark.parametrize(("mode", "kind"), [("L", "JPEG"), ("LA", "PNG"), ("P", "PNG")])
def test_grey_gives_the_tensor_of_the_same_grey_in_rgb(mode: str, kind: str) -> None:
    grey = Image.new("L", (224, 224), 130)
    processor = _qwen()
    one = processor.artifact(decode_image(encoded(grey.convert(mode), kind)))
    three = processor.artifact(decode_image(encoded(grey.convert("RGB"), "PNG")))
    difference = one.tensors["pixel_values"] - three.tensors["pixel_values"]
    assert float(difference.abs().max()) <= 1 / 255 / 0.26  # one grey level, after normalisation


def test_options_reach_every_call() -> None:
    image = _decoded(200, 200)
    plain = ImageProcessor(Qwen2VLImageProcessorPil())
    small = ImageProcessor(
        Qwen2VLImageProcessorPil(), {"size": {"shortest_edge": 3136, "longest_edge": 6272}}
    )
    rows = [p.artifact(image).tensors["pixel_values"].shape[0] for p in (plain, small)]
    assert rows[1] < rows[0]


def test_the_fingerprint_is_that_of_everything_that_decides_the_tensors() -> None:
    prints = {
        _qwen().fingerprint(),
        _qwen(patch_size=16).fingerprint(),
        ImageProcessor(SiglipImageProcessorPil()).fingerprint(),
        ImageProcessor(Qwen2VLImageProcessorPil(), {"do_resize": False}).fingerprint(),
    }
    assert len(prints) == 4
    assert _qwen().fingerprint() in prints


class _Untidy:
    """A processor that returns numbers in every form, and other things."""

    def __call__(self, **_: object) -> dict[str, object]:
        return {
            "pixel_values": torch.zeros(1, 4),
            "sizes": [[3, 4]],
            "names": ["a"],
            "ragged": [[1], [1, 2]],
            "nothing": None,
        }


def test_numbers_become_tensors_and_the_rest_is_left_out() -> None:
    artifact = ImageProcessor(_Untidy()).artifact(_decoded(4, 4))
    assert set(artifact.tensors) == {"pixel_values", "sizes"}
    assert artifact.tensors["sizes"].tolist() == [[3, 4]]


def test_an_artifact_cannot_be_changed_and_knows_its_bytes() -> None:
    artifact = Artifact(
        {"a": torch.zeros(2, 3), "b": torch.zeros(1, dtype=torch.int64)}, (1, 1), ""
    )
    assert artifact.nbytes == 2 * 3 * 4 + 8
    with pytest.raises(TypeError):
        artifact.tensors["c"] = torch.zeros(1)  # type: ignore[index]
