"""Each artifact is read once, made at most once, and nobody pays for another's failure."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from firstlight.errors import ArtifactError, MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_cache import ArtifactCache
from firstlight.media.artifact_maker import Made, Miss
from firstlight.media.artifact_store import ArtifactStore
from firstlight.media.identity import Snapshot, request_options, take_snapshot
from firstlight.media.media_item import MediaItem, Outcome


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


@pytest.fixture
def open_store() -> Iterator[Open]:
    """``open_store(maker, max_bytes=..., trust=...)`` with pools that end with the test."""
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


# -- hits, misses, duplicates ------------------------------------------------------------------


def test_only_what_is_missing_is_made_in_one_batch_and_the_order_is_kept(open_store: Open) -> None:
    """E4: [a, b, b, a] with a cached."""
    maker = Maker()
    store = open_store(maker)
    (a,) = store.lookup(items("a"))
    found = store.prepare(items("a", "b", "b", "a"))
    assert maker.batches == [["a"], ["b"]]
    artifacts = [each.artifact for each in found]
    assert artifacts[0] is artifacts[3] is a
    assert artifacts[1] is artifacts[2] is not a
    hit, miss = Outcome.HIT, Outcome.MISS
    assert [each.outcome for each in found] == [hit, miss, miss, hit]


def test_several_misses_of_a_request_are_one_batch(open_store: Open) -> None:
    maker = Maker()
    open_store(maker).lookup(items("a", "b", "a", "c"))
    assert maker.batches == [["a", "b", "c"]]


def test_a_source_that_is_named_twice_is_read_once(open_store: Open) -> None:
    maker = Maker()
    open_store(maker).lookup(items("a", "b", "a"))
    assert sorted(map(str, maker.reads)) == ["a", "b"]


def test_no_items_are_no_work(open_store: Open) -> None:
    maker = Maker()
    assert open_store(maker).lookup([]) == []
    assert maker.batches == []


def test_equal_content_of_different_sources_is_one_artifact(open_store: Open) -> None:
    class Same(Maker):
        def snapshot(self, source: object) -> Snapshot:
            return take_snapshot(b"same")

    one, other = open_store(Same()).lookup(items("a", "b"))
    assert one is other


def test_other_options_are_another_artifact_and_the_default_is_not(open_store: Open) -> None:
    """E2 and H15: in the order A, B, A, B."""
    maker = Maker()
    store = open_store(maker)
    details = ["auto", "low", "auto", "low"]
    found = [store.lookup(items("a", options={"detail": d}))[0] for d in details]
    assert found[0] is found[2]
    assert found[1] is found[3]
    assert found[0].key != found[1].key
    assert store.lookup(items("a"))[0] is found[0]
    assert store.lookup(items("a", options={"unknown": 1}))[0].key not in {a.key for a in found}


def test_another_processor_makes_its_own(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    store.lookup(items("a"))
    maker.fingerprint = "processor 2"
    store.lookup(items("a"))
    assert maker.batches == [["a"], ["a"]]


def test_a_cache_of_no_bytes_still_makes_and_shares_within_a_request(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, max_bytes=0)
    for _ in range(2):
        one, other = store.lookup(items("a", "a"))
        assert one is other
    assert maker.batches == [["a"], ["a"]]
    assert store.cache.usage().bytes == 0


def test_seconds_are_those_of_the_own_work(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    (made,) = store.prepare(items("a"))
    (hit,) = store.prepare(items("a"))
    assert (made.decode_s, made.process_s) == (1.0, 2.0)
    assert (hit.decode_s, hit.process_s) == (0.0, 0.0)
    assert hit.read_s > 0


# -- hashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("trust", [False, True])
def test_a_wrong_hash_is_refused_whatever_is_set(
    bypass: bool, trust: bool, open_store: Open
) -> None:
    """E9"""
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[0\]: .*does not have the hash"):
        open_store(maker, trust=trust).lookup(items("a", content_hash=digest("b")), bypass=bypass)
    assert maker.batches == []


@pytest.mark.parametrize("text", ["", "abc", "sha256:abc", "SHA256:" + "a" * 64, "md5:" + "a" * 64])
def test_what_is_no_hash_is_refused_before_anything_is_read(text: str, open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"images\[0\]: .*is no digest"):
        open_store(maker).lookup(items("a", content_hash=text))
    assert maker.reads == []


def test_a_trusted_hit_never_reads_the_source(open_store: Open) -> None:
    """E6"""
    maker = Maker()
    store = open_store(maker, trust=True)
    (first,) = store.lookup(items("a"))
    (found,) = store.prepare(items("missing", content_hash=digest("a")))
    assert found.artifact is first
    assert (found.outcome, found.read_s) == (Outcome.HIT, 0.0)
    assert maker.reads == ["a"]


def test_a_trusted_hash_that_is_not_cached_is_read_and_checked(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, trust=True)
    for _ in range(2):
        store.lookup(items("a", content_hash=digest("a")))
    assert maker.reads == ["a"]
    assert maker.batches == [["a"]]


def test_by_default_a_hash_spares_no_reading(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    for _ in range(2):
        store.lookup(items("a", content_hash=digest("a")))
    assert maker.reads == ["a", "a"]
    assert maker.batches == [["a"]]


# -- bypass ------------------------------------------------------------------------------------


def test_a_bypass_shares_nothing_keeps_nothing_and_leaves_the_cache_alone(open_store: Open) -> None:
    """E8"""
    maker = Maker()
    store = open_store(maker)
    (kept,) = store.lookup(items("a"))
    before = store.cache.usage()
    one, other, new = store.lookup(items("a", "a", "b"), bypass=True)
    assert len({id(kept), id(one), id(other), id(new)}) == 4
    assert maker.batches == [["a"], ["a", "a", "b"]]
    assert store.cache.usage() == before
    assert one.key == kept.key  # what is computed from equal artifacts may be shared


def test_a_bypass_believes_no_hash_and_reads_each_source_itself(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, trust=True)
    (kept,) = store.lookup(items("a"))
    found = store.lookup(items("a", "a", content_hash=digest("a")), bypass=True)
    assert kept not in found
    assert maker.reads == ["a", "a", "a"]


# -- failures ----------------------------------------------------------------------------------


def test_the_first_item_that_cannot_be_read_is_named(open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[1\]: it is not there$"):
        open_store(maker).lookup(items("a", "missing", "b", "missing"))
    assert maker.batches == []


def test_the_first_item_that_cannot_be_made_is_named_and_the_others_are_kept(
    open_store: Open,
) -> None:
    maker = Maker()
    store = open_store(maker)
    with pytest.raises(MediaError, match=r"^images\[1\]: it is broken$"):
        store.lookup(items("a", "broken", "b"))
    store.lookup(items("a", "b"))
    assert maker.batches == [["a", "broken", "b"]]


def test_a_batch_that_raises_is_made_again_one_by_one(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    with pytest.raises(ArtifactError, match=r"^images\[1\]: preparing it failed: ZeroDivision"):
        store.lookup(items("a", "raises", "b"))
    store.lookup(items("a", "b"))
    assert maker.batches == [["a", "raises", "b"], ["a"], ["raises"], ["b"]]


def test_a_failure_is_not_kept(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    for _ in range(2):
        with pytest.raises(MediaError):
            store.lookup(items("broken"))
    assert maker.batches == [["broken"], ["broken"]]
    assert store.cache.usage().in_flight == 0


@pytest.mark.parametrize("what", ["key", "digest", "order", "count", "type"])
def test_a_maker_that_breaks_its_contract_is_refused(what: str, open_store: Open) -> None:
    """E5"""

    class Wrong(Maker):
        def make(self, misses: Sequence[Miss]) -> Sequence[Made | Exception]:
            made = list(super().make(misses))
            first = made[0].artifact  # type: ignore[union-attr]
            changed: dict[str, Any] = {
                "key": Made(Artifact(first.tensors, first.size, first.digest, "sha256:x/1.0")),
                "digest": Made(Artifact(first.tensors, first.size, digest("x"), first.key)),
                "type": first,
            }
            if what == "order":
                return made[::-1]
            if what == "count":
                return made[1:]
            return [changed[what], *made[1:]]

    store = open_store(Wrong())
    with pytest.raises(ArtifactError, match=r"^images\[0\]: "):
        store.lookup(items("a", "b"))
    assert store.cache.usage().entries == 0
    assert store.cache.usage().in_flight == 0


def test_an_option_that_is_refused_is_named_before_anything_is_read(open_store: Open) -> None:
    maker = Maker()
    with pytest.raises(MediaError, match=r"^images\[0\]: .*no canonical form"):
        open_store(maker).lookup(items("a", options={"x": object()}))
    assert maker.reads == []


# -- single flight -----------------------------------------------------------------------------


def test_requests_that_come_together_make_an_artifact_once(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    first = in_thread(lambda: store.prepare(items("a")))
    assert maker.begun.wait(5)
    others = [in_thread(lambda: store.prepare(items("a"))) for _ in range(3)]
    joined(store, 3)
    maker.go.set()
    found = [future.result(5)[0] for future in (first, *others)]
    assert maker.batches == [["a"]]
    assert len({id(each.artifact) for each in found}) == 1
    assert [each.outcome for each in found] == [Outcome.MISS] + 3 * [Outcome.JOINED]
    assert found[1].process_s == 0.0


def test_a_request_may_join_one_make_another_and_hit_a_third(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    store.lookup(items("hit"))
    maker.go.clear()
    maker.begun.clear()
    first = in_thread(lambda: store.lookup(items("a")))
    assert maker.begun.wait(5)
    second = in_thread(lambda: store.prepare(items("b", "a", "hit")))
    joined(store, 1)
    maker.go.set()
    assert [p.outcome for p in second.result(5)] == [Outcome.MISS, Outcome.JOINED, Outcome.HIT]
    assert second.result()[1].artifact is first.result(5)[0]
    assert maker.batches == [["hit"], ["a"], ["b"]]


@pytest.mark.parametrize("who", ["owner", "joiner"])
def test_giving_up_ends_nothing_but_the_own_wait(who: str, open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    gives_up: dict[str, Future[None]] = {"owner": Future(), "joiner": Future()}
    owner = in_thread(lambda: store.lookup(items("a"), until=gives_up["owner"]))
    assert maker.begun.wait(5)
    joiner = in_thread(lambda: store.lookup(items("a"), until=gives_up["joiner"]))
    joined(store, 1)
    gives_up[who].set_result(None)
    gone, stays = (owner, joiner) if who == "owner" else (joiner, owner)
    with pytest.raises(CancelledError):
        gone.result(5)
    assert not stays.done()
    maker.go.set()
    (artifact,) = stays.result(5)
    assert store.lookup(items("a"))[0] is artifact
    assert maker.batches == [["a"]]


def test_what_everybody_gave_up_is_made_and_kept(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    gives_up: Future[None] = Future()
    only = in_thread(lambda: store.lookup(items("a"), until=gives_up))
    assert maker.begun.wait(5)
    gives_up.set_result(None)
    with pytest.raises(CancelledError):
        only.result(5)
    maker.go.set()
    store.lookup(items("a"))
    assert maker.batches == [["a"]]


def test_giving_up_while_a_source_is_read_makes_nothing(open_store: Open) -> None:
    reading, answer = threading.Event(), threading.Event()

    class Slow(Maker):
        def snapshot(self, source: object) -> Snapshot:
            reading.set()
            assert answer.wait(5)
            return super().snapshot(source)

    maker, gives_up = Slow(), Future[None]()
    store = open_store(maker)
    future = in_thread(lambda: store.lookup(items("a"), until=gives_up))
    assert reading.wait(5)
    gives_up.set_result(None)
    with pytest.raises(CancelledError):
        future.result(5)
    answer.set()
    assert maker.batches == []


def test_a_failure_reaches_those_who_joined_each_with_its_own_place(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    owner = in_thread(lambda: store.lookup(items("broken")))
    assert maker.begun.wait(5)
    joiner = in_thread(lambda: store.lookup(items("a", "broken")))
    joined(store, 1)
    maker.go.set()
    errors = [owner.exception(5), joiner.exception(5)]
    assert [str(error) for error in errors] == [
        "images[0]: it is broken",
        "images[1]: it is broken",
    ]
    assert store.cache.usage().in_flight == 0


def test_a_broken_picture_does_not_fail_who_waits_for_another_of_its_batch(
    open_store: Open,
) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    owner = in_thread(lambda: store.lookup(items("raises", "a")))
    assert maker.begun.wait(5)
    joiner = in_thread(lambda: store.lookup(items("a")))
    joined(store, 1)
    maker.go.set()
    assert isinstance(owner.exception(5), ArtifactError)
    assert len(joiner.result(5)) == 1


def test_what_began_before_a_flush_serves_its_own_and_new_requests_make_anew(
    open_store: Open,
) -> None:
    maker = Maker()
    store = open_store(maker)
    maker.go.clear()
    old = in_thread(lambda: store.lookup(items("a")))
    assert maker.begun.wait(5)
    store.cache.flush()
    maker.begun.clear()
    new = in_thread(lambda: store.lookup(items("a")))
    assert maker.begun.wait(5)
    maker.go.set()
    assert old.result(5)[0] is not new.result(5)[0]
    assert store.lookup(items("a"))[0] is new.result()[0]
    assert maker.batches == [["a"], ["a"]]


def test_work_that_is_cancelled_with_its_pool_leaves_nobody_waiting() -> None:
    maker = Maker()
    maker.go.clear()
    readers, makers = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
    store = ArtifactStore(
        maker, ArtifactCache(1 << 20), reader_for=lambda source: readers, makers=makers
    )
    first = in_thread(lambda: store.lookup(items("a")))
    assert maker.begun.wait(5)
    queued = in_thread(lambda: store.lookup(items("b")))
    joiner = in_thread(lambda: store.lookup(items("b")))
    joined(store, 1)
    makers.shutdown(wait=False, cancel_futures=True)
    for future in (queued, joiner):
        assert isinstance(future.exception(5), CancelledError)
    maker.go.set()
    assert len(first.result(5)) == 1
    with pytest.raises(ArtifactError):
        store.lookup(items("c"))
    assert store.cache.usage().in_flight == 0
    readers.shutdown()


def test_many_threads_and_few_pictures_agree(open_store: Open) -> None:
    maker = Maker()
    store = open_store(maker, max_bytes=3 * 2200)  # evictions on the way
    names = [chr(ord("a") + i) for i in range(8)]

    def work(seed: int) -> bool:
        for i in range(40):
            wanted = [names[(seed * 7 + i * k) % 8] for k in (1, 3, 5)]
            found = store.lookup(items(*wanted))
            if [a.digest for a in found] != [digest(name) for name in wanted]:
                return False
        return True

    threads = [in_thread(partial(work, seed)) for seed in range(8)]
    assert all(thread.result(20) for thread in threads)
    usage = store.cache.usage()
    assert usage.in_flight == 0
    assert usage.bytes <= usage.max_bytes
    assert usage.evictions > 0
