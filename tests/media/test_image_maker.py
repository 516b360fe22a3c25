"""An image is read, decoded and processed by steps that a model may replace."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from firstlight.core.detail import DETAILS
from firstlight.errors import MediaError
from firstlight.media import decode_image
from firstlight.media.artifact_maker import Made, Miss
from firstlight.media.decode import ImageLimits
from firstlight.media.identity import Snapshot, artifact_key, take_snapshot
from firstlight.media.image_maker import ImageMaker
from firstlight.media.picture_options import Knob, PictureOptions
from firstlight.media.policy import LOCAL, FetchPolicy
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import SourceLoader
from tests.media.files import encoded, noise


def processor(**options: Any) -> ImageProcessor:
    return ImageProcessor(Qwen2VLImageProcessorPil(**options))


def maker(kind: type[ImageMaker] = ImageMaker, **fields: Any) -> ImageMaker:
    own = fields.pop("processor", None) or processor()
    return kind(own, SourceLoader(fields.pop("policy", LOCAL)), **fields)


def miss(of: ImageMaker, source: object) -> Miss:
    snapshot = of.snapshot(source)
    key = artifact_key(snapshot.digest, snapshot.check, of.modality, of.fingerprint, {})
    return Miss(key, snapshot, {})


def made(result: Made | Exception) -> Made:
    assert isinstance(result, Made), result
    return result


@pytest.mark.parametrize("source", [noise(40, 30), encoded(noise(40, 30))], ids=["PIL", "file"])
def test_an_artifact_is_that_of_decoding_and_processing_under_the_key_asked_for(
    source: object,
) -> None:
    own = maker()
    asked = miss(own, source)
    (result,) = own.make([asked])
    artifact = made(result).artifact
    expected = processor().artifact(decode_image(noise(40, 30)))
    assert torch.equal(artifact.tensors["pixel_values"], expected.tensors["pixel_values"])
    assert artifact.size == (40, 30)
    assert artifact.key == artifact.identity == str(asked.key)
    assert artifact.digest == asked.snapshot.digest


def test_the_seconds_of_each_step_are_measured() -> None:
    ticks = iter([10.0, 11.0, 13.0])
    own = maker(clock=lambda: next(ticks))
    (result,) = own.make([miss(own, noise())])
    assert (made(result).decode_s, made(result).process_s) == (1.0, 2.0)


def test_what_is_wrong_with_one_image_is_no_others_failure() -> None:
    own = maker(limits=ImageLimits(max_pixels=100))
    sources = [noise(8, 8), encoded(noise(8, 8))[:-40], noise(20, 20)]
    good, broken, large = own.make([miss(own, source) for source in sources])
    assert made(good).artifact.size == (8, 8)
    assert isinstance(broken, MediaError)
    assert isinstance(large, MediaError)
    assert "at most 100" in str(large)


def test_the_images_of_a_batch_are_worked_on_side_by_side() -> None:
    together = threading.Barrier(3, timeout=5)

    class Waiting(ImageMaker):
        def make_one(self, miss: Miss) -> Made:
            together.wait()
            return super().make_one(miss)

    with ThreadPoolExecutor(3) as workers:
        own = maker(Waiting, workers=workers)
        asked = [miss(own, noise(seed=seed)) for seed in range(3)]
        results = own.make(asked)
    assert [made(result).artifact.key for result in results] == [str(a.key) for a in asked]


def test_an_option_that_cannot_be_honoured_is_refused_by_name() -> None:
    own = maker()
    assert own.options({"type": "image", "detail": "auto"}) == {}
    with pytest.raises(MediaError, match="the option 'min_pixels' of a picture is not supported"):
        own.options({"min_pixels": 1})


def chooser() -> ImageMaker:
    knobs = {"size": Knob("a mapping", lambda value: isinstance(value, dict))}
    low = {"size": {"shortest_edge": 784, "longest_edge": 1568}}
    choices = PictureOptions(details={"low": low}, knobs=knobs, own={"size": {"a": 1}})
    return maker(processor=ImageProcessor(Qwen2VLImageProcessorPil(), choices=choices))


def test_ways_to_say_one_thing_have_one_key() -> None:
    own = chooser()
    low = {"size": {"shortest_edge": 784, "longest_edge": 1568}}
    assert own.options({"detail": "low"}) == low
    assert own.options({"mm_processor_kwargs": low}) == low
    assert own.options({"detail": "high", "mm_processor_kwargs": {"size": {"a": 1}}}) == {}
    assert own.options({"detail": "low", "mm_processor_kwargs": {}}) == low


def test_what_a_request_chooses_reaches_the_processor() -> None:
    own = chooser()
    plain = miss(own, noise(200, 200))
    chosen = Miss(plain.key, plain.snapshot, own.options({"detail": "low"}))
    grids = [made(r).artifact.tensors["image_grid_thw"] for r in own.make([plain, chosen])]
    assert [grid.tolist() for grid in grids] == [[[1, 14, 14]], [[1, 2, 2]]]


def test_a_detail_without_effect_is_the_same_picture() -> None:
    own = maker()
    assert [own.options({"detail": d}) for d in DETAILS] == [{}] * 4


def test_the_background_shows_through() -> None:
    clear = Image.new("RGBA", (28, 28), (9, 9, 9, 0))
    for colour in ((255, 255, 255), (0, 0, 255)):
        own = maker(background=colour)
        (result,) = own.make([miss(own, clear)])
        flat = processor().artifact(decode_image(Image.new("RGB", (28, 28), colour)))
        pixels = made(result).artifact.tensors["pixel_values"]
        assert torch.equal(pixels, flat.tensors["pixel_values"])


def test_a_side_ratio_beyond_the_processor_is_refused_before_decoding() -> None:
    (result,) = (own := maker()).make([miss(own, encoded(noise(500, 2))[:-20])])
    assert isinstance(result, MediaError)
    assert "at most 200 is accepted" in str(result)


def test_sources_are_read_within_the_policy() -> None:
    with pytest.raises(MediaError, match="not accepted"):
        maker(policy=FetchPolicy()).snapshot("/proc/self/environ")


def test_the_fingerprint_is_that_of_the_processor_and_equal_in_equal_makers() -> None:
    assert maker().fingerprint == maker().fingerprint
    assert maker().fingerprint != maker(processor=processor(patch_size=16)).fingerprint
    assert maker().fingerprint != maker(background=(0, 0, 0)).fingerprint


def test_every_step_can_be_replaced() -> None:
    """E3"""

    class Own(ImageMaker):
        modality = "drawing"

        def payload(self) -> Mapping[str, object]:
            return {"version": 2}

        def options(self, fields: Mapping[str, object]) -> Mapping[str, object]:
            return {name: value for name, value in fields.items() if name == "pen"}

        def snapshot(self, source: object) -> Snapshot:
            return take_snapshot(encoded(noise(8, 8)))

        def make_one(self, miss: Miss) -> Made:
            result = super().make_one(miss)
            assert result.artifact.size == (8, 8)
            return result

    own = maker(Own)
    assert own.modality == "drawing"
    assert own.fingerprint != maker().fingerprint
    assert own.options({"pen": 1, "ink": 2}) == {"pen": 1}
    (result,) = own.make([miss(own, "anything")])
    assert made(result).artifact.size == (8, 8)


def test_settings_that_cannot_be_described_are_shared_with_nobody() -> None:
    class Strange(ImageMaker):
        def payload(self) -> Mapping[str, object]:
            return {"setting": object()}

    assert maker(Strange).fingerprint != maker(Strange).fingerprint

    class StrangeProcessor(Qwen2VLImageProcessorPil):  # type: ignore[misc]
        def to_dict(self) -> dict[str, Any]:
            return {**super().to_dict(), "setting": object()}

    prints = {ImageProcessor(StrangeProcessor()).fingerprint() for _ in range(2)}
    assert len(prints) == 2
