"""From what a request names to artifacts, with all the threads that do it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from firstlight.errors import MediaError
from firstlight.media import MediaItem, Outcome
from firstlight.media.pipeline import ImagePipeline
from firstlight.media.policy import FetchPolicy
from firstlight.media.processor import ImageProcessor
from tests.media.files import encoded, noise
from tests.media.listener import listening


class Counting(Qwen2VLImageProcessorPil):  # type: ignore[misc]
    """Counts its calls."""

    calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        type(self).calls += 1
        return super().__call__(*args, **kwargs)


@pytest.fixture
def pipeline() -> Iterator[ImagePipeline]:
    Counting.calls = 0
    with ImagePipeline(ImageProcessor(Counting()), cache_bytes=1 << 24) as own:
        yield own


def items(*sources: object, **fields: Any) -> list[MediaItem]:
    return [MediaItem(s, where=f"images[{i}]", **fields) for i, s in enumerate(sources)]


def test_one_picture_named_in_four_ways_is_processed_once(
    pipeline: ImagePipeline, tmp_path: Path
) -> None:
    data = encoded(noise())
    path = tmp_path / "a.png"
    path.write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    found = pipeline.lookup(items(data, str(path), path.as_uri(), url))
    assert len({id(artifact) for artifact in found}) == 1
    assert Counting.calls == 1
    assert pipeline.usage().misses == 1


def test_a_path_whose_content_changed_is_another_picture(
    pipeline: ImagePipeline, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    keys = []
    for seed in (1, 2, 1):
        path.write_bytes(encoded(noise(seed=seed)))
        keys.append(pipeline.lookup(items(path))[0].key)
    assert keys[0] == keys[2] != keys[1]
    assert Counting.calls == 2


def page(bar: int) -> bytes:
    """A white page of 600 x 800 as JPEG with one bar low down."""
    image = Image.new("RGB", (600, 800), "white")
    image.paste("black", (100, 700 + bar, 500, 720 + bar))
    return encoded(image, "JPEG", quality=90)


def test_pages_with_long_common_heads_are_different_pictures(pipeline: ImagePipeline) -> None:
    """H14"""
    one, other = pipeline.lookup(items(page(0), page(60)))
    texts = [base64.b64encode(page(bar)).decode() for bar in (0, 60)]
    assert texts[0][:5000] == texts[1][:5000]
    assert one.key != other.key
    assert not torch.equal(one.tensors["pixel_values"], other.tensors["pixel_values"])


def test_even_one_digest_for_all_mixes_up_no_two_pictures(
    pipeline: ImagePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H14: the other picture is made again instead of being answered with the first."""
    expected = [pipeline.lookup(items(page(bar)))[0].tensors["pixel_values"] for bar in (0, 60)]
    constant = "sha256:" + "0" * 64
    monkeypatch.setattr("firstlight.media.identity.digest_of", lambda data: constant)
    for order in ((0, 1), (1, 0), (0, 0)):
        found = pipeline.lookup(items(*(page(60 * i) for i in order)))
        for i, artifact in zip(order, found, strict=True):
            assert artifact.digest == constant
            assert torch.equal(artifact.tensors["pixel_values"], expected[i])
    (again,) = pipeline.lookup(items(page(60)))
    (first,) = pipeline.lookup(items(page(0)))
    assert again.identity != first.identity


def test_a_picture_that_cannot_be_had_is_named_and_the_others_are_kept(
    pipeline: ImagePipeline, tmp_path: Path
) -> None:
    good, broken = encoded(noise()), encoded(noise())[:-500]
    with pytest.raises(MediaError, match=r"^images\[1\]: .*truncated or corrupt"):
        pipeline.lookup(items(good, broken))
    with pytest.raises(MediaError, match=r"^images\[1\]: no such picture"):
        pipeline.lookup(items(good, tmp_path / "missing.png"))
    assert pipeline.prepare(items(good))[0].outcome is Outcome.HIT


def test_bad_requests_among_good_ones_harm_none(pipeline: ImagePipeline) -> None:
    """H22: 20 broken and 20 good ones at the same time."""
    good = [encoded(noise(seed=seed)) for seed in range(4)]
    bad = [good[0][:-300], b"", b"GIF89a", b"<!doctype html>"]

    def ask(i: int) -> object:
        try:
            return pipeline.lookup(items((bad if i % 2 else good)[i // 2 % 4]))[0]
        except MediaError as error:
            return error

    with ThreadPoolExecutor(16) as requests:
        answers = list(requests.map(ask, range(40)))
    assert all(isinstance(answer, MediaError) for answer in answers[1::2])
    assert len({id(answer) for answer in answers[0::2]}) == 4
    assert Counting.calls == 4
    assert pipeline.usage().in_flight == 0


def test_a_picture_that_is_replayed_costs_no_decoding_and_no_processor(
    pipeline: ImagePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(noise())
    pipeline.lookup(items(data))

    def never(*args: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr("firstlight.media.image_maker.decode_image", never)
    (found,) = pipeline.prepare(items(data))
    assert found.outcome is Outcome.HIT
    assert Counting.calls == 1


def test_the_policy_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(noise()))
    with (
        ImagePipeline(ImageProcessor(Counting()), FetchPolicy(), cache_bytes=0) as own,
        pytest.raises(MediaError, match="file system are not accepted: allowed_media_root"),
    ):
        own.lookup(items(path))


def test_a_picture_that_is_here_does_not_wait_behind_those_that_are_fetched() -> None:
    """Whoever names slow servers holds up nobody who sends the picture along."""
    asked, over = threading.Event(), threading.Event()

    def hangs(handler: object) -> None:
        asked.set()
        over.wait(10)

    policy = FetchPolicy(any_host=True, trusted_networks=("127.0.0.1",), ports=None, total_s=5)
    with (
        listening(hangs) as server,
        ImagePipeline(ImageProcessor(Counting()), policy, cache_bytes=0, fetchers=1) as own,
        ThreadPoolExecutor(1) as requests,
    ):
        fetching = requests.submit(own.lookup, items(server.url()))
        assert asked.wait(5)
        assert len(own.lookup(items(encoded(noise())))) == 1
        assert not fetching.done()
        over.set()
        assert isinstance(fetching.exception(10), MediaError)


def test_giving_up_ends_the_wait(pipeline: ImagePipeline) -> None:
    over: Future[None] = Future()
    over.set_result(None)
    with pytest.raises(CancelledError):
        pipeline.prepare(items(encoded(noise())), until=over)


def test_a_flush_forgets_all(pipeline: ImagePipeline) -> None:
    for _ in range(2):
        pipeline.lookup(items(encoded(noise())))
        pipeline.flush()
    assert Counting.calls == 2
    assert pipeline.usage().entries == 0
