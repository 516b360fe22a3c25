"""Public faults of picture decoding (cases H18 to H23) and what becomes of the requests."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.errors import MediaError, RequestError
from tests.cases.steps import Pair, ask, assert_idle, assert_same, assert_sensitive, params
from tests.conftest import TinyCheckpoint
from tests.media.files import encoded, halves, noise, opened
from tests.media.peaks import peak_mib
from tests.media.raw_files import vast_png
from tests.pictures import picture


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: TinyCheckpoint) -> Pair:
    return Pair(tiny_checkpoint)


def show(llm: LLM, *images: bytes | Image.Image) -> Completion:
    """A question about pictures that come as file contents."""
    parts: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
    content = [*parts, {"type": "text", "text": "What is it?"}]
    return llm.chat([{"role": "user", "content": content}], params(4))


def assert_alive(llm: LLM, eager: LLM) -> None:
    """Afterwards text and pictures are answered as before, and nothing is held."""
    assert_same(ask(llm, "Hello", tokens=4), ask(eager, "Hello", tokens=4))
    shown = picture(48, 32, seed=1)
    assert_same(show(llm, shown), show(eager, shown))
    assert_idle(llm)


def test_a_photo_reaches_the_model_upright(pair: Pair) -> None:
    """H18: orientation 6 is asked and answered as the upright picture, its grid included."""
    llm, _ = pair.get("qwen3_vl")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(halves(64, 32), exif=exif)
    # As an array: a rotated image object keeps its EXIF block, and would be turned once more.
    upright = Image.fromarray(np.rot90(np.asarray(opened(turned)), k=-1).copy())
    answer = show(llm, turned)
    assert_same(answer, show(llm, upright))
    assert_sensitive(answer, show(llm, encoded(halves(64, 32))))


def test_a_photo_with_a_broken_exif_block_is_answered_as_one_without(pair: Pair) -> None:
    """H18."""
    llm, _ = pair.get("qwen3_vl")
    broken = encoded(halves(64, 32), "JPEG", exif=b"Exif\0\0" + b"Z" * 16)
    assert_same(show(llm, broken), show(llm, encoded(halves(64, 32), "JPEG")))


def transparent(colour: tuple[int, int, int], kind: str) -> bytes:
    """A visible square in the middle of transparent pixels of a hidden colour."""
    image = Image.new("RGBA", (64, 64), (*colour, 0))
    image.paste((10, 90, 10, 255), (16, 16, 48, 48))
    if kind == "PNG P":
        found = image.convert("RGB").quantize(4)
        index = found.getpixel((0, 0))
        return encoded(found, "PNG", transparency=index)
    if kind == "PNG LA":
        return encoded(image.convert("LA"), "PNG")
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    return encoded(image, kind, **options)


@pytest.mark.parametrize("kind", ["PNG", "PNG LA", "PNG P", "WEBP"])
def test_colours_hidden_under_transparent_pixels_do_not_reach_the_model(
    kind: str, pair: Pair
) -> None:
    """H19: different hidden colours, one answer; and that of the picture on white."""
    llm, _ = pair.get("qwen3_vl")
    first, second = (transparent(colour, kind) for colour in [(0, 0, 0), (250, 10, 200)])
    assert first != second
    answer = show(llm, first)
    assert_same(answer, show(llm, second))
    white = Image.new("RGB", (64, 64), "white")
    square = Image.new("RGB", (32, 32), (10, 90, 10))
    white.paste(square.convert("L") if kind == "PNG LA" else square, (16, 16))
    assert_same(answer, show(llm, white))


def grey_files() -> list[bytes]:
    """One grey in five modes and files; the 1-bit one is white, the nearest it knows."""
    flat = Image.new("L", (64, 64), 200)
    return [
        encoded(flat, "JPEG"),
        encoded(flat.convert("LA"), "PNG"),
        encoded(flat.convert("1"), "PNG"),
        encoded(flat.convert("P"), "PNG"),
        encoded(flat.convert("RGB"), "JPEG"),
    ]


@pytest.mark.parametrize("family", ["qwen3_vl", "llava", "idefics3"])
def test_grey_pictures_alone_and_together_with_colour_are_answered(family: str, pair: Pair) -> None:
    """H20: every mode alone, then all in one request."""
    llm, eager = pair.get(family)
    files = grey_files()
    for file in files:
        assert_same(show(llm, file), show(eager, file))
    assert_same(show(llm, files[0]), show(llm, files[4]))
    together = show(llm, *files, picture(48, 32, seed=2))
    assert_same(together, show(eager, *files, picture(48, 32, seed=2)))
    assert_alive(llm, eager)


ACCEPTED = [(1, 1), (22, 3), (3, 22), (26, 28), (500, 19), (1000, 5)]
REFUSED = [(1, 500), (500, 1), (1093, 5), (5601, 28)]


@pytest.mark.parametrize("size", ACCEPTED, ids=str)
def test_odd_sizes_are_answered_with_as_many_rows_as_places(
    size: tuple[int, int], pair: Pair
) -> None:
    """H21: sides of 1 and 3 pixels, sides under a patch, ratios up to the limit."""
    llm, eager = pair.get("qwen3_vl")
    shown = noise(*size)
    answer = show(llm, shown)
    assert answer.usage.image_tokens > 0
    assert_same(answer, show(eager, shown))


@pytest.mark.parametrize("size", REFUSED, ids=str)
def test_a_ratio_beyond_the_model_is_refused_with_its_place(
    size: tuple[int, int], pair: Pair
) -> None:
    """H21: before anything runs, with the ratio and the limit; streamed or not."""
    llm, eager = pair.get("qwen3_vl")
    message = rf"messages\[0\]\.content\[0\].*{size[0]} x {size[1]}.*200"
    with pytest.raises(MediaError, match=message):
        show(llm, noise(*size))
    content = [{"type": "image", "image": noise(*size)}]
    with pytest.raises(MediaError, match=message):
        next(llm.stream_chat([{"role": "user", "content": content}], params(4)))
    assert_alive(llm, eager)


def broken_files() -> dict[str, bytes]:
    """Files that open or not, but never decode fully."""
    whole = encoded(noise(64, 64), "JPEG")
    return {
        "cut by 64": whole[:-64],
        "cut in half": whole[: len(whole) // 2],
        "the first 20 bytes": whole[:20],
        "empty": b"",
        "a GIF's first bytes": b"GIF89a",
        "random bytes": np.random.default_rng(0).bytes(100),
        "a web page": b"<!doctype html><html><body>404 not found</body></html>",
    }


@pytest.mark.parametrize("kind", broken_files())
def test_a_broken_file_is_refused_by_its_place_and_harms_nobody(kind: str, pair: Pair) -> None:
    """H22: the second of two pictures is broken; a good request runs meanwhile."""
    llm, eager = pair.get("qwen3_vl")
    good = llm.stream_chat(
        [{"role": "user", "content": [{"type": "image", "image": picture(48, 32, seed=1)}]}],
        params(12),
    )
    pieces = [next(good)]
    with pytest.raises(RequestError, match=r"messages\[0\]\.content\[1\]"):
        show(llm, picture(48, 32, seed=1), broken_files()[kind])
    pieces += list(good)
    answer = pieces.pop()
    assert isinstance(answer, Completion)
    assert "".join(map(str, pieces)) == answer.text
    whole = eager.chat(
        [{"role": "user", "content": [{"type": "image", "image": picture(48, 32, seed=1)}]}],
        params(12),
    )
    assert_same(answer, whole)
    assert_alive(llm, eager)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
@pytest.mark.parametrize("side", [9000, 13000, 20000])
def test_a_vast_canvas_is_refused_with_its_size_and_takes_no_memory(side: int, pair: Pair) -> None:
    """H23: a 1-bit PNG of zeros of a few kilobytes; alone, and ten in one request."""
    llm, eager = pair.get("qwen3_vl")
    data = vast_png(side, side)
    assert len(data) < 64 * 1024

    def refused(count: int) -> None:
        with pytest.raises(MediaError, match=r"messages\[0\]\.content\[0\].*67108864") as error:
            show(llm, *[data] * count)
        assert str(side * side) in str(error.value)

    refused(1)
    assert peak_mib(lambda: refused(1)) < 64
    assert peak_mib(lambda: refused(10)) < 64
    assert_alive(llm, eager)
