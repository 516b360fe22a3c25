"""Bytes become upright RGB, or an error that names what is wrong with them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from firstlight.errors import MediaError
from firstlight.media import decode_image
from tests.media.files import encoded, halves, noise, opened
from tests.media.raw_files import tiff


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
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF", "MPO"])
def test_every_orientation_is_turned_upright_from_bytes_and_images(
    orientation: int, kind: str
) -> None:
    data = _oriented(orientation, kind)
    expected = np.asarray(ImageOps.exif_transpose(opened(data)).convert("RGB"))
    assert expected.shape == ((48, 16, 3) if orientation > 4 else (16, 48, 3))
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


BROKEN_EXIF = [
    *(b"Z", b"Z" * 16, b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\xff\xff\xff\xff"),
    # An orientation of 300, one that is a text, and one that is a fraction over 0.
    b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x2c\x01\0\0\0\0\0\0",
    b"II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x02\0\0\0six\0\0\0\0\0",
    b"II*\0\x08\0\0\0\x01\0\x12\x01\x05\0\x01\0\0\0\x1a\0\0\0\0\0\0\0" + bytes(8),
]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # which Pillow gives, and reads on
@pytest.mark.parametrize("block", BROKEN_EXIF, ids=range(len(BROKEN_EXIF)))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_broken_exif_block_counts_as_none(kind: str, block: bytes) -> None:
    plain = encoded(halves(), kind)
    broken = encoded(halves(), kind, exif=b"Exif\0\0" + block)
    assert len(broken) > len(plain)
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


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF", "TIFF", "MPO"])
def test_the_first_frame_or_page_is_the_image(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in [(255, 0, 0), (0, 255, 0)]]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert getattr(opened(data), "n_frames", 1) == 2
    assert np.abs(_array(data)[4, 4].astype(int) - [255, 0, 0]).max() <= 2


def test_the_first_frame_of_a_gif_may_cover_a_part_of_it() -> None:
    """The screen is 6 x 4, its frame a red pixel in the middle: the rest is background."""
    screen = b"GIF89a\x06\0\x04\0\x80\0\0" + bytes([255, 0, 0, 0, 0, 255])
    control = b"\x21\xf9\x04\x01\0\0\x01\0"  # colour 1 is transparent
    frame = b"\x2c\x03\0\x02\0\x01\0\x01\0\0" + b"\x02\x02\x44\x01\0"
    pixels = _array(screen + control + frame + b"\x3b")
    assert pixels.shape == (4, 6, 3)
    assert pixels[2, 3].tolist() == [255, 0, 0]
    assert (pixels.reshape(-1, 3) == 255).all(axis=1).sum() == 23


@pytest.mark.parametrize("endian", ["<", ">"])
def test_a_tiled_tiff_is_put_together(endian: str) -> None:
    samples = np.asarray(noise(64, 48))
    assert np.array_equal(_array(tiff(samples, 8, 2, tile=16, endian=endian)), samples)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_a_bitmap_of_every_mode_is_read(mode: str) -> None:
    image = noise().convert(mode)
    assert np.array_equal(_array(encoded(image, "BMP")), np.asarray(image.convert("RGB")))


def test_a_given_image_is_neither_changed_nor_shared() -> None:
    image = noise()
    before = image.tobytes()
    decoded = decode_image(image)
    decoded.pixels.putpixel((0, 0), (1, 2, 3))
    assert image.tobytes() == before


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF"])
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


NOT_ACCEPTED = ["PPM", "ICO", "TGA", "PCX", "SGI", "EPS", "DIB", "JPEG2000", "DDS", "QOI", "XBM"]


@pytest.mark.parametrize("kind", NOT_ACCEPTED)
def test_formats_that_only_pillow_knows_are_refused(kind: str) -> None:
    """Among them those whose decoders run other programs."""
    image = noise(32, 32).convert("1" if kind == "XBM" else "RGB")
    data = encoded(image, kind)
    if kind != "EPS":
        assert opened(data).size == (32, 32)
    with pytest.raises(MediaError, match="accepted formats: PNG, JPEG"):
        decode_image(data)


def test_a_file_object_left_open_is_no_warning() -> None:
    with io.BytesIO(encoded(noise())) as file, Image.open(file) as image:
        assert decode_image(image).size == (64, 64)
