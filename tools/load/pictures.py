"""Pictures that the load test shows: those of the demo, and drawn ones of many forms."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from random import Random

from PIL import Image, ImageDraw

from firstlight.demo import pictures as demo_pictures

_FORMS = (
    ("PNG", "RGB"),
    ("PNG", "RGBA"),
    ("PNG", "P"),
    ("PNG", "I;16"),
    ("JPEG", "RGB"),
    ("JPEG", "L"),
    ("JPEG", "CMYK"),
    ("WEBP", "RGB"),
    ("GIF", "P"),
    ("BMP", "RGB"),
)
_COLOURS = ("red", "green", "blue", "yellow", "black", "purple", "orange")


def demo() -> Iterator[tuple[str, str]]:
    """The data URL and the question of each picture that the package ships."""
    for picture in demo_pictures():
        yield _url("PNG", picture.path.read_bytes()), picture.question


def drawn(draw: Random, number: int) -> str:
    """The data URL of coloured shapes; ``number`` chooses the format and the colour mode."""
    kind, mode = _FORMS[number % len(_FORMS)]
    size = (draw.randrange(32, 320), draw.randrange(32, 320))
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for _ in range(draw.randrange(1, 5)):
        x, y = draw.randrange(size[0]), draw.randrange(size[1])
        reach = draw.randrange(8, 80)
        shape = pen.ellipse if draw.random() < 0.5 else pen.rectangle
        shape((x, y, x + reach, y + reach), fill=draw.choice(_COLOURS))
    return _url(kind, _bytes(image, kind, mode))


def broken(draw: Random) -> dict[str, str]:
    """Data URLs of what is no picture, by what is wrong with it."""
    whole = base64.b64decode(drawn(draw, 0).partition(",")[2])
    return {
        "cut": _url("PNG", whole[: len(whole) // 2]),
        "no picture": _url("PNG", b"this is a text"),
        "empty": _url("PNG", b""),
        "no base64": "data:image/png;base64,@@@@",
        "too many pixels": _url("PNG", _said_to_be(whole, 40_000, 40_000)),
    }


def _said_to_be(png: bytes, width: int, height: int) -> bytes:
    """A PNG whose header says another size."""
    header = b"IHDR" + struct.pack(">II", width, height) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def _bytes(image: Image.Image, kind: str, mode: str) -> bytes:
    buffer = BytesIO()
    if mode == "I;16":
        image = image.convert("L").convert("I").point(lambda v: v * 257).convert("I;16")
    elif image.mode != mode:
        image = image.convert(mode)
    image.save(buffer, kind)
    return buffer.getvalue()


def _url(kind: str, content: bytes) -> str:
    return f"data:image/{kind.lower()};base64," + base64.b64encode(content).decode()
