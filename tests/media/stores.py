"""A store over a maker of texts, for the tests of what a store shares and what it does not."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from firstlight.errors import MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_cache import ArtifactCache
from firstlight.media.artifact_maker import Made, Miss
from firstlight.media.artifact_store import ArtifactStore
from firstlight.media.identity import Snapshot, request_options, take_snapshot
from firstlight.media.media_item import MediaItem


class Maker:
    """Makes an artifact of any text; ``broken`` and ``missing`` ones fail.

    Attributes:
        reads, batches: what was read, and what each call made.
        go: a batch waits for it.
        begun: set when the first batch runs.
    """

    modality = "image"
    fingerprint = "processor 1"

    def __init__(self) -> None:
        self.reads: list[object] = []
        self.batches: list[list[str]] = []
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()

    def options(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        return request_options(fields, {"detail": "auto"})

    def snapshot(self, source: object) -> Snapshot:
        self.reads.append(source)
        if source == "missing":
            raise MediaError("it is not there")
        return take_snapshot(str(source).encode())

    def make(self, misses: Sequence[Miss]) -> Sequence[Made | Exception]:
        texts = [bytes(miss.snapshot.data).decode() for miss in misses]  # type: ignore[arg-type]
        self.batches.append(texts)
        self.begun.set()
        assert self.go.wait(5)
        if "raises" in texts:
            raise ZeroDivisionError("a bug")
        return [self.make_one(miss) for miss in misses]

    def make_one(self, miss: Miss) -> Made | Exception:
        if miss.snapshot.data == b"broken":
            return MediaError("it is broken")
        pixels = torch.tensor(list(miss.snapshot.data))  # type: ignore[arg-type]
        made = Artifact({"pixels": pixels}, (1, 1), miss.snapshot.digest, str(miss.key))
        return Made(made, decode_s=1.0, process_s=2.0)


Open = Callable[..., ArtifactStore]


@contextmanager
def stores() -> Iterator[Open]:
    """``open_(maker, max_bytes=..., trust=...)`` with pools that end with the block."""
    with ThreadPoolExecutor(4) as readers, ThreadPoolExecutor(4) as makers:

        def open_(maker: Any, max_bytes: int = 1 << 20, trust: bool = False) -> ArtifactStore:
            return ArtifactStore(
                maker,
                ArtifactCache(max_bytes),
                reader_for=lambda source: readers,
                makers=makers,
                trust_hashes=trust,
            )

        yield open_


def items(*sources: str, **fields: Any) -> list[MediaItem]:
    return [MediaItem(s, where=f"images[{i}]", **fields) for i, s in enumerate(sources)]


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Run a call in a thread of its own, as a server's request would."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def joined(store: ArtifactStore, n: int) -> None:
    """Wait until ``n`` lookups have joined a flight."""
    for _ in range(500):
        if store.cache.usage().joins >= n:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{store.cache.usage().joins} of {n} lookups joined")
