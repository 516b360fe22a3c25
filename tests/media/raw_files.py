"""PNG and TIFF files that Pillow reads but cannot write: deep samples, keyed colours, odd tags."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
"""PNG's colour types."""


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk of a PNG file."""
    checksum = zlib.crc32(kind + body).to_bytes(4, "big")
    return len(body).to_bytes(4, "big") + kind + body + checksum


def png(
    values: Any, depth: int = 8, colour: int = GREY, transparent: Sequence[int] | None = None
) -> bytes:
    """A PNG file of samples ``[height, width]`` or ``[height, width, channels]``.

    Args:
        depth: bits of a sample: 1, 2, 4, 8 or 16.
        transparent: the one colour (in samples) that counts as transparent.
    """
    array = np.asarray(values)
    height, width = array.shape[:2]
    rows = b"".join(b"\0" + _packed(row.reshape(-1), depth) for row in array)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    keyed = b"" if transparent is None else struct.pack(f">{len(transparent)}H", *transparent)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"tRNS", keyed) if keyed else b"",
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        )
    )


def _packed(samples: Any, depth: int) -> bytes:
    """Samples one after the other, the last byte filled up."""
    bits = "".join(format(int(sample), f"0{depth}b") for sample in samples)
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def vast_png(width: int, height: int) -> bytes:
    """A 1-bit PNG of zeros, built without its pixels ever being in memory at once."""
    row = bytes(1 + -(-width // 8))
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, GREY, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def tiff(
    values: Any,
    bits: int,
    photometric: int = 1,
    *,
    kind: int = 1,
    endian: str = "<",
    pixels: bytes | None = None,
    tags: Mapping[int, Sequence[int]] | None = None,
    tile: int = 0,
) -> bytes:
    """An uncompressed TIFF file of one strip, or of tiles.

    Args:
        values: samples ``[height, width]`` or ``[height, width, channels]``.
        photometric: 0 where 0 is white, 1 where it is black, 2 for RGB, 5 for CMYK.
        kind: 1 for unsigned integers, 2 for signed ones, 3 for floats.
        endian: ``<`` or ``>``.
        pixels: the strip itself, for samples that are no whole bytes.
        tags: further tags of 16 bits.
        tile: side of a tile, in whole numbers of which the sides are divided; 0 for a strip.
    """
    array = np.asarray(values)
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    letter = {1: "u", 2: "i", 3: "f"}[kind]
    if pixels is None:
        pieces = _pieces(array.astype(f"{endian}{letter}{bits // 8}"), tile)
    else:
        pieces = [pixels]
    places, sizes = (324, 325) if tile else (273, 279)
    shape = {322: ("H", [tile]), 323: ("H", [tile])} if tile else {278: ("I", [height])}
    entries: dict[int, tuple[str, Sequence[int]]] = {
        256: ("I", [width]),
        257: ("I", [height]),
        258: ("H", [bits] * channels),
        259: ("H", [1]),
        262: ("H", [photometric]),
        277: ("H", [channels]),
        places: ("I", [0] * len(pieces)),  # known below
        sizes: ("I", [len(piece) for piece in pieces]),
        **shape,
        339: ("H", [kind] * channels),
        **{tag: ("H", given) for tag, given in (tags or {}).items()},
    }
    return _tiff_file(entries, pieces, places, endian)


def _tiff_file(
    entries: dict[int, tuple[str, Sequence[int]]], pieces: list[bytes], places: int, endian: str
) -> bytes:
    """Header, table of tags, the values that do not fit in it, and the pixels.

    Args:
        entries: form and values of each tag.
        pieces: strips or tiles.
        places: the tag that says where they begin.
    """
    head = 8 + 2 + 12 * len(entries) + 4
    long = sum(_size(entry) for entry in entries.values() if _size(entry) > 4)
    starts = np.cumsum([head + long, *map(len, pieces[:-1])]).tolist()
    entries[places] = ("I", starts)
    table, beyond = b"", b""
    for tag, (letter, given) in sorted(entries.items()):
        field = struct.pack(f"{endian}{len(given)}{letter}", *given)
        if len(field) > 4:
            place = struct.pack(f"{endian}I", head + len(beyond))
            beyond += field
            field = place
        table += struct.pack(f"{endian}HHI", tag, 3 if letter == "H" else 4, len(given))
        table += field.ljust(4, b"\0")
    magic = b"II*\0" if endian == "<" else b"MM\0*"
    start = magic + struct.pack(f"{endian}IH", 8, len(entries))
    return start + table + bytes(4) + beyond + b"".join(pieces)


def _pieces(array: Any, tile: int) -> list[bytes]:
    """The strip, or the tiles row by row."""
    step = tile or max(array.shape)
    height, width = array.shape[:2]
    return [
        array[y : y + step, x : x + step].tobytes()
        for y in range(0, height, step)
        for x in range(0, width, step)
    ]


def _size(entry: tuple[str, Sequence[int]]) -> int:
    letter, given = entry
    return struct.calcsize(letter) * len(given)
