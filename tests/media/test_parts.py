"""Files made of countless parts are refused before a decoder reads them one by one."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media import decode_image
from firstlight.media.parts import MAX_PARTS, MAX_SCANS, check_parts
from tests.media.files import encoded, noise
from tests.media.mutations import samples
from tests.media.raw_files import chunk, tiff

LITTLE = 200
"""Parts that no limit minds."""


def png_of(count: int) -> bytes:
    data = encoded(noise(8, 8))
    at = data.index(b"IDAT") - 4
    return data[:at] + chunk(b"teSt", b"") * count + data[at:]


def jpeg_of(count: int) -> bytes:
    data = encoded(noise(8, 8), "JPEG")
    return data[:2] + b"\xff\xfe\0\2" * count + data[2:]


def filled_jpeg_of(count: int) -> bytes:
    data = encoded(noise(8, 8), "JPEG")
    return data[:2] + b"\xff" * count + data[2:]


def scans_of(count: int) -> bytes:
    """A progressive JPEG of that many scans."""
    data = encoded(Image.new("RGB", (32, 32), (9, 9, 9)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    more = count - data.count(b"\xff\xda")
    return data[:last] + data[last:-2] * (more + 1) + data[-2:]


def before_frame(data: bytes) -> int:
    """Where a GIF's colours end and its first frame begins."""
    return 13 + (3 << ((data[10] & 7) + 1))


def gif_of(count: int) -> bytes:
    data = encoded(noise(8, 8).convert("P"), "GIF")
    at = before_frame(data)
    return data[:at] + b"\x21\xfe\1a\0" * (count // 2) + data[at:]


def comment_of(count: int) -> bytes:
    data = encoded(noise(8, 8).convert("P"), "GIF")
    at = before_frame(data)
    return data[:at] + b"\x21\xfe" + b"\1c" * count + b"\0" + data[at:]


def tiff_of(count: int, endian: str = "<", big: bool = False) -> bytes:
    """A TIFF whose strips have ``count`` places; one of them holds its row."""
    small, word, place = ("Q", "Q", 16) if big else ("I", "H", 8)
    tags = {256: 8, 257: count, 258: 8, 259: 1, 262: 1, 277: 1, 278: 1}
    entries = 9
    head = place + struct.calcsize(word) + entries * (20 if big else 12) + struct.calcsize(small)
    size = struct.calcsize(small)
    offset, length = head, head + count * 4
    fields = [(tag, 4, 1, value) for tag, value in tags.items()]
    fields += [(273, 4, count, offset), (279, 4, count, length)]
    magic = ("II" if endian == "<" else "MM").encode()
    magic += (
        struct.pack(endian + "HHHQ", 43, 8, 0, 16) if big else struct.pack(endian + "HI", 42, 8)
    )
    table = struct.pack(endian + word, entries)
    for tag, kind, n, value in sorted(fields):
        form = small if n > 1 else "I"  # a place, or the number itself
        table += struct.pack(f"{endian}HH{small}", tag, kind, n)
        table += struct.pack(f"{endian}{form}", value).ljust(size, b"\0")
    table += struct.pack(endian + small, 0)
    row = head + count * 8
    body = struct.pack(f"{endian}I", row) * count + struct.pack(f"{endian}I", 8) * count
    return magic + table + body + bytes(8)


FILES: dict[str, Callable[[int], bytes]] = {
    "PNG": png_of,
    "JPEG": jpeg_of,
    "filled JPEG": filled_jpeg_of,
    "GIF": gif_of,
    "comment of a GIF": comment_of,
    "TIFF": tiff_of,
    "big-endian TIFF": lambda count: tiff_of(count, ">"),
    "large TIFF": lambda count: tiff_of(count, big=True),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_of_many_parts_are_read_and_of_countless_ones_refused_at_once(kind: str) -> None:
    decode_image(FILES[kind](LITTLE))
    data = FILES[kind](MAX_PARTS + 100)
    started = time.process_time()
    with pytest.raises(MediaError, match=str(MAX_PARTS)):
        decode_image(data)
    assert time.process_time() - started < 0.5


def test_a_jpeg_of_more_scans_than_an_encoder_writes_is_refused() -> None:
    decode_image(scans_of(MAX_SCANS))
    with pytest.raises(MediaError, match=f"more than {MAX_SCANS} scans"):
        decode_image(scans_of(MAX_SCANS + 1))


def test_a_tags_text_and_bytes_do_not_count() -> None:
    data = encoded(Image.new("L", (4, 4)), "TIFF", description="a" * (MAX_PARTS + 10))
    assert decode_image(data).size == (4, 4)


def test_what_encoders_write_is_far_below_the_limits() -> None:
    large = noise(600, 400)
    files = [data for _, data in samples()]
    files += [encoded(large, kind) for kind in ("PNG", "JPEG", "GIF", "TIFF")]
    files.append(tiff(np.asarray(large), 8, 2, tile=16))
    for data in files:
        check_parts(data)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x89PNG", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"GIF89a" + b"\xff" * 7),
        *(b"II*\0", b"MM\0*\xff\xff\xff\xff", b"II+\0\x08\0\0\0" + b"\xff" * 8),
    ],
    ids=range(9),
)
def test_cut_off_headers_are_left_to_the_decoders(data: bytes) -> None:
    check_parts(data)
