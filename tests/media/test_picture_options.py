"""What a request may choose for its pictures is a list, each entry with its limits."""

from __future__ import annotations

import pytest

from firstlight.errors import MediaError
from firstlight.media import decode_image
from firstlight.media.picture_options import SHRINK, Knob, PictureOptions
from firstlight.media.processor import ImageProcessor
from tests.media.files import noise

SIDE = Knob("an int from 1", lambda value: isinstance(value, int) and value > 0)
OPTIONS = PictureOptions(
    details={"low": {"side": 4}}, knobs={"side": SIDE, "depth": SIDE}, own={"side": 8}
)


@pytest.mark.parametrize(
    ("detail", "kwargs", "resolved"),
    [
        ("auto", None, {}),
        ("high", {}, {}),
        ("original", None, {}),
        ("low", None, {"side": 4}),
        ("auto", {"side": 4}, {"side": 4}),
        ("low", {"side": 5}, {"side": 5}),
        ("low", {"side": 8}, {}),
        ("low", {"depth": 1}, {"side": 4, "depth": 1}),
    ],
)
def test_own_options_go_before_detail_and_what_is_in_force_is_no_choice(
    detail: str, kwargs: object, resolved: dict[str, object]
) -> None:
    assert OPTIONS.resolve(detail, kwargs) == resolved


@pytest.mark.parametrize(
    ("detail", "kwargs", "message"),
    [
        ("best", None, "detail = 'best'; accepted: auto, low, high, original"),
        (None, None, "detail = None"),
        ("auto", [1], "mm_processor_kwargs is a list; accepted: a mapping"),
        (
            "auto",
            {"do_resize": 0},
            "holds 'do_resize', which no request may set; accepted: side, d",
        ),
        ("auto", {1: 2}, "holds 1, which no request may set"),
        ("auto", {"side": "4"}, "side = '4'; accepted: an int from 1"),
        ("auto", {SHRINK: 4}, "which no request may set"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    detail: object, kwargs: object, message: str
) -> None:
    with pytest.raises(MediaError, match=message):
        OPTIONS.resolve(detail, kwargs)


def test_a_family_that_lets_choose_nothing_says_so() -> None:
    with pytest.raises(MediaError, match="accepted: none with this model"):
        PictureOptions().resolve("low", {"max_pixels": 5})


class Sizes:
    """A processor that remembers the sizes of what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, images: list[object], return_tensors: str) -> dict[str, object]:
        self.seen += [image.size for image in images]  # type: ignore[attr-defined]
        return {}


def test_a_picture_is_shrunk_before_the_processor_and_never_grown() -> None:
    sizes = Sizes()
    processor = ImageProcessor(sizes)
    for size in ((200, 100), (100, 200), (50, 20), (190, 1)):
        artifact = processor.artifact(decode_image(noise(*size)), chosen={SHRINK: 100})
        assert artifact.size == size
    assert sizes.seen == [(100, 50), (50, 100), (50, 20), (100, 1)]
