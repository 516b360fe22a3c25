"""What several requests want at one time is made once, and nobody pays for another's failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial

import pytest

from firstlight.errors import ArtifactError
from firstlight.media import Outcome
from firstlight.media.artifact_cache import ArtifactCache
from firstlight.media.artifact_store import ArtifactStore
from firstlight.media.identity import Snapshot
from tests.media.stores import Maker, Open, digest, in_thread, items, joined, stores


@pytest.fixture
def open_store() -> Iterator[Open]:
    """``open_store(maker, max_bytes=..., trust=...)`` with pools that end with the test."""
    with stores() as open_:
        yield open_


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
