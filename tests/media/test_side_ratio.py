"""The ratio that a model's processor refuses is known before anything is decoded."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.models.glm_image.image_processing_pil_glm_image import GlmImageImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from firstlight.errors import MediaError
from firstlight.media import ImageLimits, ImageProcessor, decode_image
from firstlight.media.side_ratio import side_ratio_limit
from tests.media.files import noise


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (Qwen2VLImageProcessorPil, 200),
        (GlmImageImageProcessorPil, 4),
        (SiglipImageProcessorPil, None),
    ],
)
def test_the_limit_is_the_processors_own(kind: Any, limit: float | None) -> None:
    assert side_ratio_limit(kind()) == limit


def test_the_limit_is_where_the_processor_begins_to_refuse() -> None:
    limit = int(side_ratio_limit(Qwen2VLImageProcessorPil()) or 0)
    free = ImageLimits(max_side_ratio=None)
    processor = ImageProcessor(Qwen2VLImageProcessorPil())
    processor.artifact(decode_image(noise(limit, 1), free))
    with pytest.raises(MediaError, match="aspect ratio"):
        processor.artifact(decode_image(noise(limit + 1, 1), free))


def test_an_object_of_no_library_has_no_limit() -> None:
    assert side_ratio_limit(object()) is None


@pytest.mark.parametrize(
    ("own", "models", "result"), [(200, 4, 4), (2, 4, 2), (None, 4, 4), (8, None, 8)]
)
def test_the_lower_of_two_limits_holds(
    own: float | None, models: float | None, result: float
) -> None:
    assert ImageLimits(max_side_ratio=own).within(models).max_side_ratio == result
    assert ImageLimits(max_side_ratio=None).within(None).max_side_ratio is None
