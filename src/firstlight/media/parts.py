"""Counts the parts that a picture file is made of, before a decoder reads them one by one.

A decoder's header code takes microseconds and hundreds of bytes for each chunk, segment or offset.
Files made of nothing else would keep it busy for minutes and fill the memory with a thousandfold of
what they are long.
"""

from __future__ import annotations

import struct
from typing import Final

from firstlight.errors import MediaError

MAX_PARTS: Final = 1 << 17
"""Chunks of a PNG, segments of a JPEG before its pixels, blocks of a GIF before its first frame,
values of a TIFF tag (its strips)."""

MAX_SCANS: Final = 100
"""Scans of a JPEG file; encoders write about ten. Each is a pass over all pixels that may take a
hundred bytes, so a small file with thousands of them would keep a core busy for many minutes."""


def check_parts(data: bytes) -> None:
    """Raise MediaError, with the limit, for a file of more parts than any encoder writes."""
    if data.startswith(b"\x89PNG"):
        _check("PNG", "chunks", _png_chunks(data), MAX_PARTS)
    elif data.startswith(b"\xff\xd8"):
        _check("JPEG", "segments", _jpeg_segments(data), MAX_PARTS)
        # In pixels this marker is escaped, so that little else than scans has it.
        _check("JPEG", "scans", data.count(b"\xff\xda"), MAX_SCANS)
    elif data.startswith(b"GIF8"):
        _check("GIF", "blocks before its first frame", _gif_blocks(data), MAX_PARTS)
    elif data.startswith((b"II", b"MM")):
        _check("TIFF", "values in one tag", _tiff_values(data), MAX_PARTS)


def _check(kind: str, what: str, found: int, limit: int) -> None:
    if found > limit:
        raise MediaError(
            f"the {kind} image has more than {limit} {what}; as many are accepted at most"
        )


def _png_chunks(data: bytes) -> int:
    """Chunks up to the end; counting stops above the limit."""
    at, found = 8, 0
    while at + 8 <= len(data) and found <= MAX_PARTS:
        found += 1
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return found


def _jpeg_segments(data: bytes) -> int:
    """Segments before the first scan, and bytes between them that belong to none."""
    at, found = 2, 0
    while found <= MAX_PARTS:
        start = data.find(b"\xff", at)
        if start < 0 or start + 1 >= len(data) or data[start + 1] == 0xDA:
            break
        found += 1 + start - at
        marker = data[start + 1]
        if marker == 0xFF:  # a fill byte
            at = start + 1
        elif marker <= 1 or 0xD0 <= marker <= 0xD9:  # without a body
            at = start + 2
        else:
            at = start + 2 + max(int.from_bytes(data[start + 2 : start + 4], "big"), 2)
    return found


def _gif_blocks(data: bytes) -> int:
    """Blocks of all extensions before the first frame."""
    if len(data) < 13:
        return 0
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    found = 0
    while at + 1 < len(data) and data[at] != 0x2C and found <= MAX_PARTS:
        found += 1
        if data[at] != 0x21:  # decoders step over what they do not know
            at += 1
            continue
        at += 2
        while at < len(data) and data[at] and found <= MAX_PARTS:
            found += 1
            at += 1 + data[at]
        at += 1
    return found


def _tiff_values(data: bytes) -> int:
    """The largest count of numbers that a tag of the first page has."""
    order = "<" if data.startswith(b"II") else ">"
    big = 43 in data[2:4]
    head, count, entry = ("Q", "Q", "HHQ8x") if big else ("I", "H", "HHI4x")
    try:
        (start,) = struct.unpack_from(order + head, data, 8 if big else 4)
        (entries,) = struct.unpack_from(order + count, data, start)
    except (struct.error, OverflowError):
        return 0
    start += struct.calcsize(order + count)
    size = struct.calcsize(order + entry)
    known = min(entries, max(len(data) - start, 0) // size, 1 << 16)
    tags = struct.iter_unpack(order + entry, data[start : start + known * size])
    # Bytes and texts stay as they are.
    return max((n for _, kind, n in tags if kind not in (1, 2, 7)), default=0)
