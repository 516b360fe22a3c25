"""What an operation costs does not grow with the pool, nor with what is cached in it."""

from __future__ import annotations

import gc
import time

from firstlight.memory import KVLayout, KVMemory, PrefixKey

P = 4


def _filled(n_pages: int) -> KVMemory:
    """A memory whose pages are all cached, by requests of 32 pages that share nothing."""
    layout, sides = KVLayout.of([None, 16], 1000), [n_pages, n_pages // 2]
    memory = KVMemory(layout, n_pages, sides, P, True, copy=lambda places, rows: None)
    for n in range(n_pages // 32):
        _serve(memory, [n] * 128)
    return memory


def _serve(memory: KVMemory, ids: list[int]) -> None:
    key = PrefixKey(ids, [], P)
    holding = memory.start(key, key.length - 1)
    assert memory.reserve(holding, key.length, expected=key.length + 32)
    assert memory.prepare(holding, holding.cached, key.length)
    memory.publish(holding, key, key.length)
    memory.advance(holding, key.length)
    for n in range(8):
        key.extend([n])
        assert memory.reserve(holding, key.length)
        assert memory.prepare(holding, key.length - 1, key.length)
        memory.advance(holding, key.length)
        memory.publish(holding, key, key.length - 1)
    memory.release(holding)


def _seconds(memory: KVMemory) -> float:
    """The quickest of many requests: start, prefill, eight decode steps, release. Each finds the
    first token of another's first page, and leaves a last page that is not full."""
    best = float("inf")
    for n in range(60):
        ids = [1, *[-n - 1] * 62]
        start = time.perf_counter()
        _serve(memory, ids)
        best = min(best, time.perf_counter() - start)
    return best


def test_a_request_costs_the_same_in_a_pool_a_hundred_times_as_large() -> None:
    gc.disable()
    try:
        small, large = _seconds(_filled(300)), _seconds(_filled(30_000))
    finally:
        gc.enable()
    assert large < 4 * small, f"{large * 1e6:.0f} us against {small * 1e6:.0f} us"
