"""Public faults of what is kept of pictures (cases H15 and H16), through the engine."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from firstlight import LLM
from firstlight.core.output import Completion
from tests.cases.steps import assert_idle, assert_same, eager_llm, params
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm
from tests.media.files import encoded, noise, opened

# -- H15 ---------------------------------------------------------------------------------------

WAYS: Mapping[str, tuple[str, Mapping[str, object] | None]] = {
    "as it is": ("auto", None),
    "few pixels": ("auto", {"max_pixels": 1024}),
    "many pixels": ("auto", {"min_pixels": 12000}),
    "original": ("original", None),
}


def clear(side: int) -> bytes:
    """A PNG with colours under its transparent half."""
    image = noise(side, side).convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize((side, side)).point(lambda a: 255 * (a > 127)))
    return encoded(image)


def show(llm: LLM, data: bytes, way: str) -> Completion:
    """A question about one picture, to be prepared in one of ``WAYS``."""
    detail, kwargs = WAYS[way]
    part = {"type": "image", "image": data, "detail": detail}
    content = [part, {"type": "text", "text": "What is it?"}]
    turns: list[Mapping[str, Any]] = [{"role": "user", "content": content}]
    return llm.chat(turns, params(), mm_processor_kwargs=kwargs)


@pytest.mark.parametrize("side", [80, 150])
def test_one_file_prepared_in_other_ways_is_never_answered_from_the_first(
    side: int, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H15: each way in turn, twice, in one engine with all caches; each like a cold engine's."""
    path, data = tiny_checkpoint("qwen3_vl"), clear(side)
    with (
        eager_llm(path) as cold,
        tiny_llm(path, prefix_cache=True) as warm,
    ):
        expected = {way: show(cold, data, way) for way in WAYS}
        rounds = [{way: show(warm, data, way) for way in WAYS} for _ in range(2)]
        assert_idle(warm)
    for way, reference in expected.items():
        first, again = (answers[way] for answers in rounds)
        assert_same(first, reference)
        assert_same(again, reference)
        assert again.usage.image_tokens == reference.usage.image_tokens
        assert again.timings.pictures[0].artifact == "hit"
    tokens = {reference.usage.image_tokens for reference in expected.values()}
    assert len(tokens) == 3  # one of the limits changes nothing


@pytest.mark.parametrize("background", ["white", "black"])
def test_the_background_is_that_of_the_engine(
    background: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H15: beside the same picture with the background painted in."""
    data = clear(48)
    flat = Image.new("RGB", (48, 48), background)
    image = opened(data)
    flat.paste(image, mask=image.getchannel("A"))
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, media_background=background) as llm:
        assert_same(show(llm, data, "as it is"), show(llm, encoded(flat), "as it is"))


# -- H16 ---------------------------------------------------------------------------------------

TOGETHER = 16


def pictures(count: int) -> Iterator[bytes]:
    """Distinct JPEG files of 512 x 512 pixels that are quickly made."""
    for i in range(count):
        blocks = np.random.default_rng(i).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        yield encoded(Image.fromarray(blocks).resize((512, 512)), "JPEG")


def serve(path: Path, count: int, cap: int, pixels: int) -> list[tuple[int, int]]:
    """Requests that 16 at a time bring a new picture each; (requests, resident bytes) on the way.

    Every cache is within its cap after each batch, and at the end nothing is held.

    Args:
        pixels: that each picture is scaled to.
    """
    settings: dict[str, Any] = {"artifact_cache_bytes": cap, "encoder_cache_bytes": cap}
    seen = []
    kwargs = {"max_pixels": pixels}
    with tiny_llm(path, eager=True, max_num_seqs=TOGETHER, **settings) as llm:
        assert llm.parts.pipeline is not None
        batch: list[list[Mapping[str, Any]]] = []
        for i, data in enumerate(pictures(count), 1):
            batch.append([{"role": "user", "content": [{"type": "image", "image": data}]}])
            if len(batch) < TOGETHER:
                continue
            answers = llm.chat(batch, params(1), mm_processor_kwargs=kwargs)
            assert all(answer.error is None for answer in answers)
            batch = []
            artifacts, rows = llm.parts.pipeline.usage(), llm.parts.encoder.usage().cache
            assert 0 < artifacts.bytes <= cap
            assert 0 < rows.bytes <= cap
            assert artifacts.in_flight == 0
            seen.append((i, resident()))
        assert artifacts.evictions > 0
        assert_idle(llm)
    return seen


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_caches_stay_within_their_caps(tiny_checkpoint: TinyCheckpoint) -> None:
    """H16, in short: half as many artifacts of 100 kB fit as there are pictures."""
    serve(tiny_checkpoint("qwen3_vl"), TOGETHER, cap=8 * 100_000, pixels=128 * 128)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux")
def test_memory_does_not_grow_with_the_pictures_of_the_past(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """H16: 2,000 distinct pictures; from the 500th on less than 2 KiB each stay behind.

    Artifacts of 400 kB in 64 MiB: the cache is full long before.
    """
    served = serve(tiny_checkpoint("qwen3_vl"), 2000, cap=64 << 20, pixels=256 * 256)
    seen = [(n, size) for n, size in served if n >= 500]
    requests, sizes = np.array(seen, dtype=np.float64).T
    slope = np.polyfit(requests, sizes, 1)[0]
    gc.collect()
    assert slope < 2048
    assert resident() <= 1.1 * sizes[0]  # the engine is closed, so it may well be less
