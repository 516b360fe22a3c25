"""Everything from a request's pictures and videos to artifacts, with the threads that do it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from firstlight.errors import MediaError
from firstlight.media.artifact import IMAGE, VIDEO, Artifact
from firstlight.media.artifact_cache import ArtifactCache, ArtifactCacheUsage
from firstlight.media.artifact_maker import ArtifactMaker
from firstlight.media.artifact_store import ArtifactStore
from firstlight.media.colour import WHITE, Colour
from firstlight.media.decode import ImageLimits
from firstlight.media.image_maker import ImageMaker
from firstlight.media.media_item import MediaItem, Prepared
from firstlight.media.policy import LOCAL, FetchPolicy
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import SourceLoader, is_web
from firstlight.media.video import VideoLimits
from firstlight.media.video_maker import VideoMaker
from firstlight.media.video_processor import VideoProcessor

BATCHES = 16
"""Requests whose images are worked on at the same time; they share the workers."""


class ImagePipeline:
    """Images and videos of one model's requests. Threads may share it; ``close`` ends its own.

    Args:
        processor: of the model.
        policy: what may be read.
        limits: what an image may be.
        background: what shows through transparent pixels.
        videos: the model's video processor; None if it takes none.
        cache_bytes: limit of the artifacts that are kept; 0 keeps none.
        fetchers: pictures that are fetched over the network at the same time; all other sources
            pass them by.
        workers: images that are decoded and processed at the same time.
        trust_hashes: see :class:`~firstlight.media.artifact_store.ArtifactStore`.

    Raises:
        ConfigError: a limit below 0, or a folder that is not there.
    """

    def __init__(
        self,
        processor: ImageProcessor,
        policy: FetchPolicy = LOCAL,
        *,
        limits: ImageLimits | None = None,
        background: Colour = WHITE,
        videos: VideoProcessor | None = None,
        cache_bytes: int,
        fetchers: int = 16,
        workers: int = 2,
        trust_hashes: bool = False,
    ) -> None:
        self._workers = ThreadPoolExecutor(workers, "firstlight-image")
        self._makers = ThreadPoolExecutor(BATCHES, "firstlight-batch")
        self._readers = ThreadPoolExecutor(workers, "firstlight-read")
        self._fetchers = ThreadPoolExecutor(fetchers, "firstlight-fetch")
        loader, limits = SourceLoader(policy), limits or ImageLimits()
        images = ImageMaker(
            processor, loader, limits=limits, background=background, workers=self._workers
        )
        makers: dict[str, ArtifactMaker] = {IMAGE: images}
        if videos is not None:
            makers[VIDEO] = VideoMaker(
                videos,
                loader,
                limits=VideoLimits(image=limits),
                background=background,
                workers=self._workers,
            )
        self._cache = ArtifactCache(cache_bytes)
        self._stores = {
            modality: ArtifactStore(
                maker,
                self._cache,
                reader_for=lambda source: self._fetchers if waits(source) else self._readers,
                makers=self._makers,
                trust_hashes=trust_hashes,
            )
            for modality, maker in makers.items()
        }

    def prepare(
        self,
        items: Sequence[MediaItem],
        *,
        bypass: bool = False,
        until: Future[Any] | None = None,
    ) -> list[Prepared]:
        """:meth:`ArtifactStore.prepare`: blocks, so it belongs in a thread of its own.

        Raises:
            MediaError: also for an item of a modality that the model does not take.
        """
        for item in items:
            if item.modality not in self._stores:
                raise MediaError(f"{item.where} is a {item.modality}; the model takes none")
        found: dict[int, Prepared] = {}
        for modality, store in self._stores.items():
            places = [i for i, item in enumerate(items) if item.modality == modality]
            if places:
                made = store.prepare([items[i] for i in places], bypass=bypass, until=until)
                found.update(zip(places, made, strict=True))
        return [found[i] for i in range(len(items))]

    def lookup(self, items: Sequence[MediaItem]) -> list[Artifact]:
        """The artifacts of a request's images and videos, in order."""
        return [prepared.artifact for prepared in self.prepare(items)]

    def flush(self) -> None:
        """Forget all artifacts, as new weights or another processor ask for."""
        self._cache.flush()

    def usage(self) -> ArtifactCacheUsage:
        """What the cache holds, and its counts."""
        return self._cache.usage()

    def close(self) -> None:
        """Forget all artifacts and end the threads; what has not begun is cancelled."""
        self.flush()
        for pool in (self._fetchers, self._readers, self._makers, self._workers):
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def waits(source: object) -> bool:
    """Whether reading a source, or a part of it, means to wait for another machine."""
    return any(map(is_web, source)) if isinstance(source, list | tuple) else is_web(source)
