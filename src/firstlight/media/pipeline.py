"""Everything from a request's pictures to their artifacts, with the threads that do it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from firstlight.media.artifact import Artifact
from firstlight.media.artifact_cache import ArtifactCache, ArtifactCacheUsage
from firstlight.media.artifact_store import ArtifactStore
from firstlight.media.colour import WHITE, Colour
from firstlight.media.decode import ImageLimits
from firstlight.media.image_maker import ImageMaker
from firstlight.media.media_item import MediaItem, Prepared
from firstlight.media.policy import LOCAL, FetchPolicy
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import SourceLoader, is_web

BATCHES = 16
"""Requests whose images are worked on at the same time; they share the workers."""


class ImagePipeline:
    """The images of one model's requests. Threads may share it; ``close`` ends its threads.

    Args:
        processor: of the model.
        policy: what may be read.
        limits: what an image may be.
        background: what shows through transparent pixels.
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
        cache_bytes: int,
        fetchers: int = 16,
        workers: int = 2,
        trust_hashes: bool = False,
    ) -> None:
        self._workers = ThreadPoolExecutor(workers, "firstlight-image")
        self._makers = ThreadPoolExecutor(BATCHES, "firstlight-batch")
        self._readers = ThreadPoolExecutor(workers, "firstlight-read")
        self._fetchers = ThreadPoolExecutor(fetchers, "firstlight-fetch")
        maker = ImageMaker(
            processor,
            SourceLoader(policy),
            limits=limits,
            background=background,
            workers=self._workers,
        )
        self._store = ArtifactStore(
            maker,
            ArtifactCache(cache_bytes),
            reader_for=lambda source: self._fetchers if is_web(source) else self._readers,
            makers=self._makers,
            trust_hashes=trust_hashes,
        )

    def prepare(
        self,
        items: Sequence[MediaItem],
        *,
        bypass: bool = False,
        until: Future[Any] | None = None,
    ) -> list[Prepared]:
        """:meth:`ArtifactStore.prepare`: blocks, so it belongs in a thread of its own."""
        return self._store.prepare(items, bypass=bypass, until=until)

    def lookup(self, items: Sequence[MediaItem]) -> list[Artifact]:
        """The artifacts of a request's images, in order."""
        return self._store.lookup(items)

    def flush(self) -> None:
        """Forget all artifacts, as new weights or another processor ask for."""
        self._store.cache.flush()

    def usage(self) -> ArtifactCacheUsage:
        """What the cache holds, and its counts."""
        return self._store.cache.usage()

    def close(self) -> None:
        """Forget all artifacts and end the threads; what has not begun is cancelled."""
        self.flush()
        for pool in (self._fetchers, self._readers, self._makers, self._workers):
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
