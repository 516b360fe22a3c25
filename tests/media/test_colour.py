"""Any pixel mode and sample depth becomes the RGB that its file means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from firstlight.errors import ConfigError, MediaError
from firstlight.media.colour import STRIP, parse_colour, rawmode_of, to_rgb
from firstlight.media.decode import ImageLimits, decode_image
from tests.media.files import encoded, noise, opened
from tests.media.raw_files import GREY, GREY_ALPHA, RGB, RGBA, png, tiff

RAMP = np.linspace(0, 65535, 256).round().astype(np.int64).reshape(16, 16)
GREYS = list(range(256))
ENDS = pytest.mark.parametrize("endian", ["<", ">"], ids=["little", "big"])


def reds(data: bytes | Image.Image) -> list[int]:
    """The first channel; all are equal."""
    pixels = np.asarray(decode_image(data).pixels)
    assert (pixels == pixels[..., :1]).all()
    return [int(value) for value in pixels[..., 0].ravel()]


# -- deep samples ------------------------------------------------------------------------------


@ENDS
def test_sixteen_bit_tiff_grey_is_scaled(endian: str) -> None:
    assert reds(tiff(RAMP, 16, endian=endian)) == GREYS


def test_tiff_grey_whose_zero_is_white_is_inverted() -> None:
    assert reds(tiff(RAMP, 16, 0)) == GREYS[::-1]
    assert reds(tiff(RAMP // 257, 8, 0)) == GREYS[::-1]
    assert reds(tiff(RAMP / 65535, 32, 0, kind=3)) == GREYS[::-1]


@ENDS
def test_signed_sixteen_bit_grey_ends_at_its_own_white(endian: str) -> None:
    values = reds(tiff(RAMP // 2, 16, kind=2, endian=endian))
    assert max(abs(a - b) for a, b in zip(values, GREYS, strict=True)) <= 1


def test_twelve_bit_grey_ends_at_4095() -> None:
    ramp = np.linspace(0, 4095, 256).round().astype(np.int64)
    bits = "".join(format(value, "012b") for value in ramp)
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    assert reds(tiff(ramp.reshape(16, 16), 12, pixels=packed)) == GREYS


def test_unsigned_32_bit_grey_is_not_taken_for_negative() -> None:
    assert reds(tiff(RAMP * 65537, 32)) == GREYS
    assert reds(tiff(RAMP, 32)) == GREYS  # the range of 16 bits, in wider samples


@ENDS
def test_signed_32_bit_and_float_grey_is_scaled(endian: str) -> None:
    assert reds(tiff(RAMP * 32768, 32, kind=2, endian=endian)) == GREYS
    assert reds(tiff(RAMP / 65535, 32, kind=3, endian=endian)) == GREYS
    assert reds(tiff(RAMP / 257, 32, kind=3, endian=endian)) == GREYS


def test_float_values_that_are_no_numbers_do_no_harm() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 0.5, 1.0, -3.0]])
    assert reds(tiff(values, 32, kind=3)) == [0, 255, 0, 128, 255, 0]


@ENDS
@pytest.mark.parametrize("channels", [3, 4])
def test_sixteen_bit_tiff_colours_are_scaled(endian: str, channels: int) -> None:
    alpha = [np.full_like(RAMP, 65535)] if channels == 4 else []
    tags = {338: [2]} if channels == 4 else {}
    data = tiff(np.stack([RAMP] * 3 + alpha, -1), 16, 2, endian=endian, tags=tags)
    values = reds(data)
    assert max(abs(a - b) for a, b in zip(values, GREYS, strict=True)) <= 1


@ENDS
def test_sixteen_bit_cmyk_is_ink(endian: str) -> None:
    data = tiff(np.stack([RAMP] * 3 + [RAMP * 0], -1), 16, 5, endian=endian)
    values = reds(data)
    assert max(abs(a - b) for a, b in zip(values, GREYS[::-1], strict=True)) <= 1


@pytest.mark.parametrize(
    ("colour", "planes"),
    [(RGB, [0, 0, 0]), (RGBA, [0, 0, 0, 65535]), (GREY, [0]), (GREY_ALPHA, [0, 65535])],
    ids=["RGB", "RGBA", "grey", "grey and alpha"],
)
def test_sixteen_bit_png_is_scaled(colour: int, planes: list[int]) -> None:
    samples = np.stack([RAMP if plane == 0 else RAMP * 0 + plane for plane in planes], -1)
    values = reds(png(samples, 16, colour))
    assert max(abs(a - b) for a, b in zip(values, GREYS, strict=True)) <= 1


# -- transparency ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_the_transparent_grey_of_a_png_is_found_at_every_depth(depth: int) -> None:
    levels = np.arange(min(1 << depth, 256)) * (257 if depth == 16 else 1)
    samples = levels.repeat(8).reshape(8, -1)
    plain = np.asarray(decode_image(png(samples, depth)).pixels)
    for level in levels[:: max(len(levels) // 8, 1)]:
        data = png(samples, depth, transparent=[level])
        keyed = np.asarray(decode_image(data, background=(7, 7, 7)).pixels)
        expected = np.where((samples == level)[..., None], 7, plain)
        assert np.array_equal(keyed, expected)


@pytest.mark.parametrize(("depth", "colour"), [(8, (10, 20, 30)), (16, (2570, 5140, 7710))])
def test_the_transparent_colour_of_a_png_is_found(depth: int, colour: tuple[int, ...]) -> None:
    samples = np.array([[colour, colour[::-1]]])
    pixels = decode_image(png(samples, depth, RGB, transparent=colour)).pixels
    assert [pixels.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (30, 20, 10)]


def _half_transparent(mode: str) -> Image.Image:
    grey = Image.new("LA", (4, 4), (100, 128))
    return grey.convert(mode) if mode in ("LA", "La") else grey.convert("RGBA").convert(mode)


@pytest.mark.parametrize("mode", ["LA", "La", "PA", "RGBA", "RGBa"])
def test_half_transparent_pixels_of_every_mode_mix_with_the_background(mode: str) -> None:
    image = _half_transparent(mode)
    assert image.mode == mode
    for background in [(255, 255, 255), (0, 0, 0), (0, 200, 50)]:
        shown = np.asarray(decode_image(image, background=background).pixels)[0, 0]
        expected = [(100 * 128 + part * 127) / 255 for part in background]
        assert np.abs(shown - expected).max() <= 1


def test_a_palettes_partial_transparency_mixes_with_the_background() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 0, 200, 0, 100, 0])
    image.putdata([0, 1, 2])
    data = encoded(image, transparency=bytes([0, 128, 255]))
    pixels = np.asarray(decode_image(data, background=(0, 0, 0)).pixels)[0].tolist()
    assert pixels == [[0, 0, 0], [0, 0, 100], [0, 100, 0]]


def test_opaque_pixels_do_not_depend_on_the_background() -> None:
    data = encoded(noise().convert("RGBA"))
    first, second = (decode_image(data, background=c).pixels for c in [(0, 0, 0), (9, 99, 199)])
    assert first.tobytes() == second.tobytes() == noise().tobytes()


# -- modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV", "I", "F"])
@pytest.mark.parametrize("white", [False, True])
def test_black_and_white_are_so_in_every_mode(mode: str, white: bool) -> None:
    image = Image.new("RGB", (5, 3), "white" if white else "black").convert(mode)
    expected = 255 if white else 0
    if mode == "I":  # 8 bits in a wider mode; its white is that of 16 bits
        expected = round(expected * 255 / 65535)
    assert set(reds(image)) == {expected}


def test_a_mode_without_a_conversion_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Image.Image, *_: object, **__: object) -> Image.Image:
        raise ValueError("conversion not supported")

    monkeypatch.setattr(Image.Image, "convert", refuse)
    with pytest.raises(MediaError, match="'CMYK'"):
        to_rgb(Image.new("CMYK", (2, 2)))


def _adobe(image: Image.Image, transform: int) -> bytes:
    """A JPEG of four channels whose Adobe marker says how they are meant."""
    data = encoded(image, "JPEG", quality=95, subsampling=0)
    marker = data.index(b"Adobe")
    return data[: marker + 11] + bytes([transform]) + data[marker + 12 :]


@pytest.mark.parametrize("colour", [(200, 30, 60), (20, 180, 90), (250, 250, 250), (0, 0, 0)])
def test_a_ycck_jpeg_has_the_colours_of_its_inks(colour: tuple[int, int, int]) -> None:
    """Adobe stores luminance and chrominance of the inks, and the black inverted."""
    inks = Image.new("RGB", (16, 16), tuple(255 - part for part in colour)).convert("YCbCr")
    inverted = [255 - int(np.asarray(part)[0, 0]) for part in inks.split()]
    stored = Image.merge("CMYK", [Image.new("L", (16, 16), v) for v in (*inverted, 0)])
    pixels = np.asarray(decode_image(_adobe(stored, 2)).pixels)
    assert np.abs(pixels[8, 8].astype(int) - colour).max() <= 4


# -- pieces ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGBA", "P", "I;16", "CMYK"])
def test_strips_join_without_a_seam(mode: str) -> None:
    width, height = 512, 2 * STRIP // 512 + 3
    grey = Image.linear_gradient("L").resize((width, height))
    if mode == "I;16":
        image: Any = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    else:
        image = grey.convert(mode)
    whole = np.asarray(decode_image(image, ImageLimits(max_side_ratio=None)).pixels)
    expected = np.asarray(grey.convert(mode).convert("RGB") if mode != "I;16" else grey)
    assert np.array_equal(whole, expected if expected.ndim == 3 else np.dstack([expected] * 3))


def test_the_raw_mode_is_known_until_an_image_is_loaded() -> None:
    image = opened(png(np.zeros((2, 8)), 2))
    assert rawmode_of(image) == "L;2"
    image.load()
    assert rawmode_of(image) == rawmode_of(Image.new("L", (2, 2))) == ""


# -- names of colours --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "colour"),
    [("white", (255, 255, 255)), ("#0a0b0c", (10, 11, 12)), ("#0a0b0cff", (10, 11, 12))],
)
def test_a_colour_is_a_name_or_hex_digits(text: str, colour: tuple[int, int, int]) -> None:
    assert parse_colour(text) == colour


@pytest.mark.parametrize("text", ["", "whitish", "#12", "255,255,255"])
def test_what_is_no_colour_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted: a name such as 'white'"):
        parse_colour(text)
