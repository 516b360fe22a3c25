"""Bytes become upright RGB, or an error that names what is wrong with them."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from firstlight.errors import ConfigError, MediaError
from firstlight.media import ImageLimits, decode_image
from tests.media.files import encoded, halves, noise, opened


def _array(data: bytes | Image.Image) -> np.ndarray:
    image = decode_image(data).pixels
    assert image.mode == "RGB"
    return np.asarray(image)


def _oriented(orientation: int, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(halves(), kind, exif=exif)


# -- orientation -------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_every_orientation_is_turned_upright_from_bytes_and_images(
    orientation: int, kind: str
) -> None:
    data = _oriented(orientation, kind)
    expected = np.asarray(ImageOps.exif_transpose(opened(data)).convert("RGB"))
    assert np.array_equal(_array(data), expected)
    assert np.array_equal(_array(opened(data)), expected)


def test_orientation_6_puts_the_left_half_on_top() -> None:
    decoded = decode_image(_oriented(6))
    assert decoded.size == (16, 48)
    top, bottom = decoded.pixels.getpixel((8, 4)), decoded.pixels.getpixel((8, 44))
    assert isinstance(top, tuple)
    assert isinstance(bottom, tuple)
    assert top[0] > 200 > 50 > top[2]
    assert bottom[2] > 200 > 50 > bottom[0]


def test_a_broken_exif_block_counts_as_none() -> None:
    plain, broken = (
        encoded(halves(), "JPEG"),
        encoded(halves(), "JPEG", exif=b"Exif\0\0" + b"Z" * 16),
    )
    assert np.array_equal(_array(broken), _array(plain))
    assert np.array_equal(_array(opened(broken)), _array(plain))


# -- colour ------------------------------------------------------------------------------------


def _hidden(colour: tuple[int, int, int], mode: str = "RGBA") -> Image.Image:
    """A visible square in the middle of transparent pixels of a hidden colour."""
    image = Image.new("RGBA", (32, 32), (*colour, 0))
    image.paste((10, 90, 10, 255), (8, 8, 24, 24))
    return image.convert(mode)


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "PNG"), ("LA", "PNG"), ("RGBA", "WEBP")])
def test_hidden_colours_do_not_show(mode: str, kind: str) -> None:
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    first, second = (
        encoded(_hidden(colour, mode), kind, **options) for colour in [(0, 0, 0), (250, 10, 200)]
    )
    assert first != second
    assert np.array_equal(_array(first), _array(second))
    assert _array(first)[0, 0].tolist() == [255, 255, 255]


def test_half_transparent_pixels_mix_with_white() -> None:
    data = encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128)))
    assert abs(int(_array(data)[0, 0, 0]) - 127) <= 1


def test_an_opaque_alpha_channel_changes_nothing() -> None:
    image = noise()
    assert np.array_equal(_array(encoded(image.convert("RGBA"))), np.asarray(image))


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_palette_colour_becomes_white(kind: str) -> None:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.paste(1, (4, 0, 8, 8))
    pixels = _array(encoded(image, kind, transparency=0))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 7].tolist() == [0, 0, 200]


def test_a_transparent_rgb_colour_becomes_white() -> None:
    pixels = _array(encoded(halves(), transparency=(255, 0, 0)))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, -1].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    ("mode", "kind"), [("L", "JPEG"), ("LA", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("L", "PNG")]
)
def test_grey_has_three_equal_channels(mode: str, kind: str) -> None:
    image = Image.new("L", (224, 224), 120).convert(mode)
    pixels = _array(encoded(image, kind))
    assert pixels.shape == (224, 224, 3)
    assert np.abs(pixels.astype(int) - 120).max() <= 1


def test_one_bit_images_are_black_and_white() -> None:
    image = Image.new("1", (8, 4), 1)
    image.paste(0, (4, 0, 8, 4))
    pixels = _array(encoded(image))
    assert pixels[0, 0].tolist() == [255] * 3
    assert pixels[0, 7].tolist() == [0] * 3


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_not_clipped(kind: str) -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    pixels = _array(encoded(Image.fromarray(ramp), kind))
    assert pixels[..., 0].ravel().tolist() == list(range(256))


@pytest.mark.parametrize(
    ("dtype", "white"),
    [(np.int32, 65535), (np.int32, 2**31 - 1), (np.float32, 1), (np.float32, 255)],
)
def test_deeper_grey_is_scaled_to_its_white(dtype: type, white: int) -> None:
    values: np.ndarray = np.array([[0, white // 2 if white > 1 else 0.5, white]], dtype=dtype)
    pixels = _array(Image.fromarray(values))[0, :, 0].tolist()
    assert pixels[0] == 0
    assert abs(pixels[1] - 127) <= 1
    assert pixels[2] == 255


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
@pytest.mark.parametrize(
    ("ink", "colour"),
    [((255, 0, 0, 0), (0, 255, 255)), ((0, 0, 0, 255), (0, 0, 0)), ((0, 0, 0, 0), (255, 255, 255))],
)
def test_cmyk_has_the_colours_of_its_inks(
    kind: str, ink: tuple[int, ...], colour: tuple[int, ...]
) -> None:
    pixels = _array(encoded(Image.new("CMYK", (16, 16), ink), kind))
    assert np.abs(pixels[8, 8].astype(int) - colour).max() <= 3


def test_the_first_frame_of_an_animation_is_the_image() -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in [(255, 0, 0), (0, 255, 0)]]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert _array(data)[0, 0].tolist() == [255, 0, 0]


def test_a_given_image_is_neither_changed_nor_shared() -> None:
    image = noise()
    before = image.tobytes()
    decoded = decode_image(image)
    decoded.pixels.putpixel((0, 0), (1, 2, 3))
    assert image.tobytes() == before


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP"])
def test_files_cut_off_are_refused(kind: str) -> None:
    data = encoded(noise(), kind)
    for keep in (len(data) - 64, len(data) // 2, 20):
        with pytest.raises(MediaError):
            decode_image(data[:keep])


@pytest.mark.parametrize(
    "data",
    [b"GIF89a", bytes(range(100)), b"<html><body>not found</body></html>", b"%!PS-Adobe-3.0"],
)
def test_what_is_no_image_is_refused_with_the_accepted_formats(data: bytes) -> None:
    with pytest.raises(MediaError, match="PNG, JPEG"):
        decode_image(data)


def test_an_empty_file_is_named_so() -> None:
    with pytest.raises(MediaError, match="empty"):
        decode_image(b"")


def test_a_damaged_image_object_is_refused() -> None:
    data = encoded(noise(), "PNG")
    with pytest.raises(MediaError, match="truncated or corrupt"):
        decode_image(opened(data[: len(data) // 2]))


# -- limits ------------------------------------------------------------------------------------


def _vast_png(side: int) -> bytes:
    """A 1-bit PNG of zeros, built without its pixels ever being in memory at once."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + kind + body + checksum

    row = bytes(1 + -(-side // 8))
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9000, 13000, 20000])
def test_a_vast_canvas_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    data = _vast_png(side)
    assert len(data) < 64 * 1024
    decoded: list[object] = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: decoded.append(self))
    with pytest.raises(MediaError, match="pixels"):
        decode_image(data)
    assert decoded == []
    decode_image(encoded(noise()))
    assert decoded != []  # what was watched is how images are decoded


def test_the_pixel_limit_names_both_numbers_and_admits_its_own_size() -> None:
    data = encoded(Image.new("RGB", (20, 10)))
    assert decode_image(data, ImageLimits(max_pixels=200)).size == (20, 10)
    with pytest.raises(MediaError, match=r"20 x 10 = 200 pixels.*199"):
        decode_image(data, ImageLimits(max_pixels=199))


def test_the_side_ratio_limit_names_both_numbers() -> None:
    limits = ImageLimits(max_side_ratio=200)
    assert decode_image(encoded(Image.new("RGB", (1000, 5))), limits).size == (1000, 5)
    with pytest.raises(MediaError, match=r"1005 x 5.*201\.0.*200"):
        decode_image(encoded(Image.new("RGB", (1005, 5))), limits)


@pytest.mark.parametrize("limits", [{"max_pixels": 0}, {"max_side_ratio": 0.5}])
def test_senseless_limits_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ImageLimits(**limits)  # type: ignore[arg-type]


def test_a_file_object_left_open_is_no_warning() -> None:
    with io.BytesIO(encoded(noise())) as file, Image.open(file) as image:
        assert decode_image(image).size == (64, 64)
