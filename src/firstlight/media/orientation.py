"""Turns an image upright as its EXIF block says."""

from __future__ import annotations

from typing import Final

from PIL import ExifTags, Image

# EXIF 2.3, tag 0x0112: what to do to the stored pixels to see them upright.
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) if there is none or its block is broken.

    Only of a loaded image: some files bring the block behind the pixels, and Pillow turns TIFF
    files while it loads them.
    """
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # a malformed block raises SyntaxError, struct.error, and more
        return 1
    return value if value in _TURNS else 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The pixels with an orientation applied; the image itself if they are upright."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def keep_orientation(copied: Image.Image, original: Image.Image) -> Image.Image:
    """``copied``, a copy of ``original``, with the orientation that copies of some formats lose."""
    orientation = orientation_of(original)
    if orientation_of(copied) != orientation:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        copied.info["exif"] = exif.tobytes()
    return copied
