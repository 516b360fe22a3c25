"""The identity of an image covers all of it, and nothing but it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from firstlight.media import decode_image
from firstlight.media.digest import check_digest, digest_of
from tests.media.files import encoded, halves, noise, opened


def test_a_files_digest_is_the_sha256_of_its_bytes() -> None:
    data = encoded(noise())
    assert decode_image(data).digest == "sha256:" + hashlib.sha256(data).hexdigest()


def test_pages_with_a_long_common_head_differ() -> None:
    plain = Image.new("RGB", (600, 800), "white")
    barred = plain.copy()
    barred.paste((0, 0, 0), (100, 700, 500, 720))
    first, second = encoded(plain, "JPEG"), encoded(barred, "JPEG")
    head = len(first) // 2
    assert first[:head] == second[:head]
    assert digest_of(first) != digest_of(second)


def test_equal_images_have_equal_digests() -> None:
    assert digest_of(noise(seed=1)) == digest_of(noise(seed=1))


def test_every_part_of_an_image_is_in_its_digest() -> None:
    grey = Image.new("L", (6, 4), 7)
    palette = Image.new("P", (6, 4), 7)
    other_palette = palette.copy()
    other_palette.putpalette([9, 9, 9] * 256)
    transparent = palette.copy()
    transparent.info["transparency"] = 7
    typed = palette.copy()
    typed.info["transparency"] = b"7"
    turned = grey.copy()
    turned.getexif()[0x0112] = 6
    pixel = grey.copy()
    pixel.putpixel((5, 3), 8)
    images = [
        grey,
        Image.new("L", (4, 6), 7),
        Image.new("L", (8, 3), 7),
        pixel,
        palette,
        other_palette,
        transparent,
        typed,
        turned,
    ]
    assert len({digest_of(image) for image in images}) == len(images)


def test_the_orientation_of_an_image_object_is_part_of_it() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(halves(), "PNG", exif=exif)
    assert digest_of(opened(data)) != digest_of(halves())
    assert decode_image(opened(data)).digest != decode_image(halves()).digest


def test_a_file_and_its_decoded_image_are_different_identities(tmp_path: Path) -> None:
    data = encoded(noise())
    assert digest_of(data) != digest_of(opened(data))


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "A" * 64, "sha1:" + "a" * 64, "sha256:" + "a" * 63, None]
)
def test_other_forms_are_no_digest(text: object) -> None:
    with pytest.raises(ValueError, match="64 lower-case hex"):
        check_digest(text)


def test_a_digest_passes_its_own_check() -> None:
    digest = digest_of(b"")
    assert check_digest(digest) == digest


def test_an_array_and_a_tensor_are_their_dtype_shape_and_bytes() -> None:
    values = [[1, 2], [3, 4]]
    arrays = [np.array(values), np.array(values, dtype=np.int32), np.array(values).reshape(4)]
    tensors = [torch.tensor(values), torch.tensor(values, dtype=torch.int32)]
    digests = [digest_of(value) for value in (*arrays, *tensors)]
    assert len(set(digests)) == 5
    assert digest_of(np.array(values).T.copy().T) == digests[0]
    assert digest_of(torch.tensor([[1, 3], [2, 4]]).T) == digests[3]


@pytest.mark.parametrize("data", [None, "a", 3, [1], np.array([object()])])
def test_nothing_else_has_a_digest(data: object) -> None:
    with pytest.raises(TypeError, match="has no digest"):
        digest_of(data)
