"""Requests of an event loop through the step thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion
from firstlight.engine.aio import AsyncEngine, Delta, ServingLimits, Stream
from firstlight.errors import DeadlineError, DrainingError, OverloadedError, RequestError
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm, user
from tests.pictures import picture

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
Asked = Callable[[AsyncEngine], Awaitable[Any]]


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    with tiny_llm(
        tiny_checkpoint("qwen3_vl"), prefix_cache=True, prefill_buckets=(64,), proof="off"
    ) as llm:
        yield llm


@asynccontextmanager
async def serving(llm: LLM, **limits: Any) -> AsyncIterator[AsyncEngine]:
    """Nothing is left of any request when the block ends."""
    engine = AsyncEngine(llm.parts, ServingLimits(**limits), clock=time.perf_counter)
    await engine.start()
    try:
        yield engine
        until = time.monotonic() + 5
        while engine.loop.in_flight and time.monotonic() < until:
            await asyncio.sleep(0.005)
        assert engine.loop.in_flight == engine.intake.requests == 0
        assert llm.parts.scheduler.stats.running == llm.parts.scheduler.stats.waiting == 0
    finally:
        await engine.close()


def run(llm: LLM, asked: Asked, **limits: Any) -> Any:
    """The result of ``asked`` with an engine of these limits."""

    async def main() -> Any:
        async with serving(llm, **limits) as engine:
            return await asked(engine)

    return asyncio.run(main())


async def answer(stream: Stream) -> list[Completion]:
    async with stream:
        return await stream.completions()


def test_answers_are_those_of_the_python_api(llm: LLM) -> None:
    conversations = [user("Hi"), user(picture(seed=3), "What is it?"), user("Good day")]
    expected = llm.chat(conversations, GREEDY)

    async def all_at_once(engine: AsyncEngine) -> list[list[Completion]]:
        return await asyncio.gather(*(answer(engine.chat(c, GREEDY)) for c in conversations))

    for (got,), wanted in zip(run(llm, all_at_once), expected, strict=True):
        assert (got.text, got.token_ids) == (wanted.text, wanted.token_ids)


def test_deltas_join_to_the_answer(llm: LLM) -> None:
    async def deltas(engine: AsyncEngine) -> list[Delta]:
        async with engine.text("Hello", GREEDY, n=2) as stream:
            return [delta async for delta in stream]

    found = run(llm, deltas)
    for index in (0, 1):
        own = [d for d in found if d.index == index]
        last = own[-1].completion
        assert last is not None
        assert all(d.completion is None for d in own[:-1])
        assert "".join(d.text for d in own) == last.text
        assert tuple(t for d in own for t in d.token_ids) == last.token_ids
        assert [d.tokens for d in own] == list(range(1, 7))


def test_an_invalid_request_raises_and_leaves_nothing(llm: LLM) -> None:
    async def invalid(engine: AsyncEngine) -> None:
        with pytest.raises(RequestError, match="messages is empty"):
            await answer(engine.chat([], GREEDY))

    run(llm, invalid)


def test_preparing_a_request_blocks_neither_the_event_loop_nor_the_steps(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two threads one is held up; what the other prepares is answered meanwhile."""
    go_on = threading.Event()
    plain = llm.parts.admission.read_text

    def slow(prompt: str, *rest: Any, **more: Any) -> Any:
        assert threading.current_thread().name.startswith("firstlight-admit")
        if prompt == "slow":
            go_on.wait(10)
        return plain(prompt, *rest, **more)

    monkeypatch.setattr(llm.parts.admission, "read_text", slow)

    async def both(engine: AsyncEngine) -> None:
        held = asyncio.create_task(answer(engine.text("slow", GREEDY)))
        await asyncio.sleep(0.01)
        await answer(engine.text("quick", GREEDY))
        assert not held.done()
        go_on.set()
        assert len(await held) == 1

    run(llm, both)


def test_leaving_the_block_takes_a_request_out(llm: LLM) -> None:
    async def leave(engine: AsyncEngine) -> int:
        async with engine.text("Hello", LONG, n=3) as stream:
            await anext(stream)
        before = engine.loop.steps
        await engine.call(lambda: None)  # what was ordered before is done
        assert llm.parts.scheduler.stats.running == 0
        return engine.loop.steps - before

    assert run(llm, leave) <= 1


def test_a_cancelled_caller_takes_its_request_with_it_wherever_it_was(llm: LLM) -> None:
    async def cancel(engine: AsyncEngine) -> None:
        for pause in (0, 0.001, 0.003, 0.01, 0.03):
            tasks = [asyncio.create_task(answer(engine.text("Hello", LONG))) for _ in range(6)]
            await asyncio.sleep(pause)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in results)
            assert engine.intake.requests == 0
        assert len(await answer(engine.text("Hello", GREEDY))) == 1

    run(llm, cancel)


def test_requests_beyond_the_limit_are_refused_and_time_is_bounded(llm: LLM) -> None:
    async def crowd(engine: AsyncEngine) -> None:
        asked = [answer(engine.text("Hello", LONG)) for _ in range(8)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        kinds = [type(r) for r in results]
        assert kinds.count(OverloadedError) == 2
        assert kinds.count(DeadlineError) == 6

    run(llm, crowd, max_waiting=2, deadline_s=0.05)


def test_draining_lets_requests_finish_and_takes_no_more(llm: LLM) -> None:
    async def drain(engine: AsyncEngine) -> None:
        tasks = [asyncio.create_task(answer(engine.text("Hello", GREEDY))) for _ in range(6)]
        await asyncio.sleep(0)
        await engine.drain(10)
        assert [len(r) for r in await asyncio.gather(*tasks)] == [1] * 6
        with pytest.raises(DrainingError):
            await answer(engine.text("Hello", GREEDY))

    run(llm, drain)


def test_what_is_left_when_draining_ends_is_told_so(llm: LLM) -> None:
    async def drain(engine: AsyncEngine) -> None:
        tasks = [asyncio.create_task(answer(engine.text("Hello", LONG))) for _ in range(8)]
        await asyncio.sleep(0.02)
        await engine.drain(0.0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(r, DrainingError) for r in results)

    run(llm, drain)


def test_waits_are_in_order_and_the_queue_is_what_lies_between_them(llm: LLM) -> None:
    async def timed(engine: AsyncEngine) -> list[Stream]:
        streams = [engine.text("Hello there", GREEDY) for _ in range(6)]
        await asyncio.gather(*map(answer, streams))
        return streams

    for stream in run(llm, timed):
        w = stream.waits
        readings = [w.received, w.permitted, w.admitted, w.started, w.first_token, w.done]
        assert None not in readings
        assert readings == sorted(readings, key=lambda t: t or 0)
        assert w.ttft_s is not None
        assert 0 <= w.queue_s < w.ttft_s < (w.total_s or 0)


def test_a_seed_gives_the_same_answers_and_different_choices(llm: LLM) -> None:
    params = SamplingParams(temperature=1, max_tokens=8, seed=4, ignore_eos=True)

    async def twice(engine: AsyncEngine) -> list[list[tuple[int, ...]]]:
        asked = [await answer(engine.text("Hello", params, n=3)) for _ in range(2)]
        return [[c.token_ids for c in completions] for completions in asked]

    first, second = run(llm, twice)
    assert first == second
    assert len(set(first)) == 3
