"""An image's size is checked against its header, so that no canvas fills the memory."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image, ImageFile

from firstlight.errors import ConfigError, MediaError
from firstlight.media import ImageLimits, decode_image
from firstlight.media.decode import accepted_formats
from firstlight.media.image_limits import MODEST
from tests.media.files import encoded, noise
from tests.media.peaks import peak_mib
from tests.media.raw_files import tiff, vast_png


def _patched(data: bytes, at: int, size: int, side: int, order: str) -> bytes:
    """Both sides in a header replaced by a vast one."""
    for place in (at, at + size):
        number = side.to_bytes(size, "big" if order == "big" else "little")
        data = data[:place] + number + data[place + size :]
    return data


def vast(side: int) -> dict[str, bytes]:
    """Small files of several formats that declare ``side x side`` pixels."""
    small = Image.new("RGB", (16, 16))
    jpeg = encoded(small, "JPEG")
    webp = encoded(small, "WEBP", lossless=True)
    at = webp.index(b"VP8L") + 9  # two sides of 14 bits, each less one
    sides = (side - 1 | side - 1 << 14).to_bytes(4, "little")
    files = {
        "PNG": vast_png(side, side),
        "JPEG": _patched(jpeg, jpeg.index(b"\xff\xc0") + 5, 2, side, "big"),
        "GIF": _patched(encoded(small, "GIF"), 6, 2, side, "little"),
        "BMP": _patched(encoded(small, "BMP"), 18, 4, side, "little"),
        "WEBP": webp[:at] + sides + webp[at + 4 :],
        "TIFF": tiff([[0]], 8, tags={256: [side], 257: [side]}),
    }
    if "AVIF" in accepted_formats():
        avif = encoded(small, "AVIF")
        files["AVIF"] = _patched(avif, avif.index(b"ispe") + 8, 4, side, "big")
    return files


@pytest.mark.parametrize("kind", vast(9000))
@pytest.mark.parametrize("side", [9000, 13000, 16000])
def test_a_vast_canvas_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, kind: str, side: int
) -> None:
    data = vast(side)[kind]
    assert len(data) < 64 * 1024
    decoded: list[object] = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: decoded.append(self))
    with pytest.raises(MediaError, match=str(ImageLimits().max_pixels)):
        decode_image(data)
    assert decoded == []
    decode_image(encoded(noise()))
    assert decoded != []  # what was watched is how images are decoded


def refused(data: bytes) -> bool:
    """Whether an image is not decoded."""
    try:
        decode_image(data)
    except MediaError:
        return True
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
@pytest.mark.parametrize("side", [9000, 13000, 20000])
def test_refusing_vast_canvases_takes_no_memory_alone_and_ten_at_a_time(side: int) -> None:
    """H23: the process's peak, read from the kernel."""
    # WebP knows no larger sides than 16383.
    files = {**vast(min(side, 16000)), "PNG": vast_png(side, side)}
    answers: list[bool] = []
    with ThreadPoolExecutor(10) as pool:
        answers += pool.map(refused, [b""] * 10)
        for kind, data in files.items():
            answers.append(refused(data))  # what is loaded once is not its account
            one = peak_mib(lambda data=data: answers.append(refused(data)))  # type: ignore[misc]
            ten = peak_mib(
                lambda data=data: answers.extend(pool.map(refused, [data] * 10))  # type: ignore[misc]
            )
            assert one < 8, (kind, one)
            assert ten < 16, (kind, ten)
    assert len(answers) == 10 + 12 * len(files)
    assert all(answers)


def test_the_pixel_limit_names_both_numbers_and_admits_its_own_size() -> None:
    data = encoded(Image.new("RGB", (20, 10)))
    assert decode_image(data, ImageLimits(max_pixels=200)).size == (20, 10)
    with pytest.raises(MediaError, match=r"20 x 10 = 200 pixels.*199"):
        decode_image(data, ImageLimits(max_pixels=199))


def test_the_side_ratio_limit_names_both_numbers() -> None:
    limits = ImageLimits(max_side_ratio=20)
    assert decode_image(encoded(Image.new("RGB", (100, 5))), limits).size == (100, 5)
    with pytest.raises(MediaError, match=r"105 x 5.*21\.0.*20"):
        decode_image(encoded(Image.new("RGB", (105, 5))), limits)


def test_a_line_is_refused_unless_the_limit_is_lifted() -> None:
    line = Image.new("RGB", (3000, 1))
    with pytest.raises(MediaError, match=r"3000 x 1.*at most 200"):
        decode_image(line)
    assert decode_image(line, ImageLimits(max_side_ratio=None)).size == (3000, 1)


def test_many_pixels_from_few_bytes_are_refused_with_all_numbers() -> None:
    side = 4000
    data = vast_png(side, side)
    with pytest.raises(MediaError, match=rf"{side**2} pixels in {len(data)} bytes.*{MODEST}.*1000"):
        decode_image(data)
    assert decode_image(data, ImageLimits(max_pixels_per_byte=None)).size == (side, side)


def test_up_to_twelve_megapixels_a_file_may_be_as_small_as_it_likes() -> None:
    assert decode_image(vast_png(4096, 3072)).size == (4096, 3072)


def test_an_image_object_has_no_bytes_to_compare_with() -> None:
    ImageLimits(max_pixels_per_byte=1).check(4000, 4000)


@pytest.mark.parametrize(
    "limits", [{"max_pixels": 0}, {"max_side_ratio": 0.5}, {"max_pixels_per_byte": 0}]
)
def test_senseless_limits_are_refused(limits: dict[str, float]) -> None:
    (name,) = limits
    with pytest.raises(ConfigError, match=name):
        ImageLimits(**limits)  # type: ignore[arg-type]


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(MediaError, match="0 x 5"):
        decode_image(Image.new("RGB", (0, 5)))
