"""Damaged picture files and data URLs: seeded, from small valid ones of every format."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from PIL import Image

from firstlight.media.decode import accepted_formats
from tests.media.files import encoded, halves, noise
from tests.media.raw_files import GREY, RGB, png, tiff

MODES = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "JPEG": ["L", "RGB", "CMYK"],
    "WEBP": ["RGB", "RGBA"],
    "GIF": ["L", "P"],
    "BMP": ["1", "L", "P", "RGB", "RGBA"],
    "TIFF": ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "F", "I;16"],
    "AVIF": ["RGB", "RGBA"],
}
"""The modes that Pillow writes in each format."""

_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "PNG": [{}, {"optimize": True}],
    "JPEG": [{}, {"progressive": True}, {"quality": 5, "subsampling": 2}],
    "WEBP": [{}, {"lossless": True}],
    "TIFF": [{"compression": c} for c in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")],
}


_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """The image in another mode; 16-bit grey has no conversion of Pillow's own."""
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    return image.convert(mode)


@cache
def samples() -> tuple[tuple[str, bytes], ...]:
    """Valid files by name: each accepted format in each of its modes and encodings, and more."""
    exif = Image.Exif()
    exif[0x0112] = 6
    found: list[tuple[str, bytes]] = []
    for kind in accepted_formats():
        for mode in MODES[kind]:
            image = in_mode(noise(23, 17), mode)
            for i, options in enumerate(_OPTIONS.get(kind, [{}])):
                found.append((f"{kind} {mode} {i}", encoded(image, kind, **options)))
        if kind not in ("GIF", "BMP"):
            found.append((f"{kind} turned", encoded(noise(23, 17), kind, exif=exif)))
    frames = [halves(20, 12), noise(20, 12)]
    for kind in ("GIF", "WEBP", "PNG", "TIFF", "AVIF"):
        if kind in accepted_formats():
            data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
            found.append((f"{kind} of two frames", data))
    ramp = np.arange(64).reshape(8, 8)
    keyed = png(np.stack([ramp * 900] * 3, -1), 16, RGB, transparent=[0, 0, 0])
    found += [
        ("JPEG of two pictures", encoded(frames[0], "MPO", save_all=True, append_images=frames)),
        ("PNG keyed RGB of 16 bits", keyed),
        ("PNG keyed grey of 2 bits", png(ramp % 4, 2, GREY, transparent=[1])),
        ("TIFF signed", tiff(ramp * 500, 16, kind=2)),
        ("TIFF unsigned", tiff(ramp * 60_000_000, 32)),
        ("TIFF big-endian", tiff(np.stack([ramp * 900] * 3, -1), 16, 2, endian=">")),
    ]
    return tuple(found)


def mutated(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    """One to eight damages of one kind or several; a file's first bytes are hit most."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        rng.choice(_DAMAGES)(rng, changed, rng.choice(others))
    return bytes(changed)


def _place(rng: random.Random, data: bytearray) -> int:
    end = len(data) if rng.random() < 0.5 else min(64, len(data))
    return rng.randrange(max(end, 1))


def _flip(rng: random.Random, data: bytearray, _: bytes) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray, _: bytes) -> None:
    if data:
        data[_place(rng, data)] = rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])


def _number(rng: random.Random, data: bytearray, _: bytes) -> None:
    """A field of 2 or 4 bytes becomes a number that is easily mishandled."""
    size = rng.choice([2, 4])
    values = [0, 1, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x3FFF, 0x7FFFFFFF, 0xFFFFFFFF, 8192]
    value = rng.choice(values) & ((1 << 8 * size) - 1)
    at = _place(rng, data)
    data[at : at + size] = value.to_bytes(size, rng.choice(_ORDERS))


def _resize(rng: random.Random, data: bytearray, _: bytes) -> None:
    """What looks like a side of the picture becomes a larger one."""
    order = rng.choice(_ORDERS)
    sides = {side.to_bytes(2, order) for side in (8, 12, 16, 17, 20, 22, 23)}
    places = [at for at in range(min(len(data), 400) - 1) if bytes(data[at : at + 2]) in sides]
    if places:
        at = rng.choice(places)
        larger = rng.choice([64, 1000, 3000, 8000, 8190, 20_000, 0xFFFF])
        data[at : at + 2] = larger.to_bytes(2, order)


def _cut(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice([1, 2, 4, 16, 200])]


def _repeat(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    piece = data[at : at + rng.choice([1, 4, 12, 64, 400])]
    data[at:at] = piece * rng.choice([1, 1, 2, 50])


def _insert(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    data[at:at] = rng.randbytes(rng.choice([1, 2, 4, 32]))


def _graft(rng: random.Random, data: bytearray, other: bytes) -> None:
    """The rest of another file."""
    at = _place(rng, data)
    data[at:] = other[rng.randrange(len(other)) :]


def _shuffle(rng: random.Random, data: bytearray, _: bytes) -> None:
    at, size = _place(rng, data), rng.choice([4, 16, 64])
    piece = data[at : at + size]
    rng.shuffle(piece)
    data[at : at + size] = piece


_DAMAGES: tuple[Callable[[random.Random, bytearray, bytes], None], ...] = (
    *(_flip, _set, _number, _resize, _cut, _remove, _repeat, _insert, _graft, _shuffle),
    _resize,
)


def mutated_file(seed: int) -> tuple[str, bytes]:
    """The damaged file of a seed, and the name of the one that it was made of."""
    rng = random.Random(f"file {seed}")
    files = samples()
    # By format first, so that those with few samples come as often.
    kind = rng.choice(sorted({name.split()[0] for name, _ in files}))
    name, data = rng.choice([entry for entry in files if entry[0].startswith(kind)])
    return name, mutated(rng, data, tuple(content for _, content in files))


_HEADERS = [
    *("data:image/png;base64,", "DATA:IMAGE/PNG;BASE64,", "data:;base64,", "data:image/jpeg,"),
    *("data:image/png;charset=x;base64,", "data:image/png;base64", "data:,", "data:", "data://a/"),
]
_PIECES = ["=", "==", "-", "_", "+", "/", " ", "\n", "\r\n", "%0A", "%", "%zz", "!", "é", "\0", ","]


def mutated_url(seed: int) -> str:
    """The damaged data URL of a seed."""
    rng = random.Random(f"url {seed}")
    encode = rng.choice([base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
    text = encode(rng.choice(samples())[1]).decode()
    header = _HEADERS[0] if rng.random() < 0.6 else rng.choice(_HEADERS)
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice(_PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + rng.choice([1, 2, 3, 50]) :]
            case 2:
                text = text[:at]
            case 3:
                text = text[:at] + chr(rng.randrange(1, 0x250)) + text[at + 1 :]
            case _:
                header = header[: rng.randrange(len(header) + 1)] + rng.choice(_PIECES)
    return rng.choice(["", "", " ", "\n"]) + header + text
