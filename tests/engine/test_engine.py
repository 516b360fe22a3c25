"""Exceptions at every seam of a step, and requests that come, go and fail beside others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion, FinishReason
from firstlight.engine import step as step_module
from firstlight.engine.detokenizer import Detokenizer
from firstlight.engine.encoder import Encoder
from firstlight.engine.placement import Placement
from firstlight.engine.scheduling import Scheduler
from firstlight.engine.sequence import Sequence
from firstlight.errors import BusyError, RequestError
from firstlight.graphs import GraphRunner
from firstlight.memory.integrity import check
from firstlight.memory.kv_memory import KVMemory
from firstlight.sampling import Draws, Sampler
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm, user
from tests.pictures import picture

BROKEN = user(picture(48, 32, seed=1), "What is it here?")
OTHER = user(picture(48, 32, seed=2), "And what is this one there?")
BROKEN_PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
# Everything that a repeated step might do twice: draws, log probabilities, counts of tokens.
OTHER_PARAMS = SamplingParams(
    temperature=1.1, seed=5, logprobs=1, frequency_penalty=0.5, max_tokens=10, ignore_eos=True
)

SEAMS: list[tuple[Any, str]] = [
    (Scheduler, "next_batch"),
    (KVMemory, "start"),
    (KVMemory, "reserve"),
    (KVMemory, "prepare"),
    (Encoder, "gather"),
    (Encoder, "_call"),
    (Encoder, "_pin"),
    (Placement, "values"),
    (step_module, "merge"),
    (GraphRunner, "decide"),
    (GraphRunner, "fill"),
    (GraphRunner, "run"),
    (Sampler, "launch"),
    (Draws, "wait"),
    (Scheduler, "commit"),
    (KVMemory, "advance"),
    (KVMemory, "publish"),
    (Encoder, "done"),
]


@pytest.fixture(scope="module", params=["off", "on"])
def llm(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LLM:
    """Tokens taken in step, and one step late."""
    return tiny_llm(
        tiny_checkpoint("gemma3_vl"),
        eager=True,
        prefix_cache=True,
        max_batch_tokens=40,
        page_size=8,
        overlap_schedule=request.param,
    )


@pytest.fixture(autouse=True)
def nothing_is_left_behind(llm: LLM) -> Iterator[None]:
    llm.flush_caches()
    yield
    check_books(llm)
    parts = llm.parts
    assert parts.kv.n_free == parts.memory.n_pages - 1
    assert parts.encoder.usage().requests == parts.encoder_cache.usage().pinned == 0


def check_books(llm: LLM) -> None:
    """The memory's counts are those of the requests that run."""
    check(llm.parts.kv, [r.holding for r in llm.parts.scheduler.running if r.holding is not None])


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException,
    at: int,
    late: bool,
) -> Iterator[None]:
    """Call number ``at`` of a function raises, before or after it did its work."""
    calls = itertools.count(1)
    plain: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        now = next(calls) == at
        if now and not late:
            raise error
        result = plain(*args, **options)
        if now:
            raise error
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, call)
        yield


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()], ids=["error", "key"])
@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: str(seam[1]).strip("_"))
def test_an_exception_at_a_seam_takes_nothing_from_another_stream(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, seam: tuple[Any, str], error: BaseException
) -> None:
    alone = llm.chat(OTHER, OTHER_PARAMS)
    for at, late in ((3, False), (6, True)):
        llm.flush_caches()
        stream = llm.stream_chat(OTHER, OTHER_PARAMS)
        pieces = [next(stream)]
        with (
            failing(monkeypatch, *seam, error, at, late),
            suppress(RuntimeError, KeyboardInterrupt, RequestError),
        ):
            llm.chat(BROKEN, BROKEN_PARAMS)
        check_books(llm)
        *more, last = stream
        assert isinstance(last, Completion)
        assert last.token_ids == alone.token_ids
        assert "".join(map(str, pieces + more)) == alone.text
        assert last.logprobs is not None
        assert alone.logprobs is not None
        for mine, expected in zip(last.logprobs, alone.logprobs, strict=True):
            assert mine.logprob == pytest.approx(expected.logprob, abs=1e-4)


def test_a_request_whose_step_always_fails_ends_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = llm.chat(OTHER, OTHER_PARAMS)
    plain = Sequence.position_columns

    def positions(sequence: Sequence, start: int, end: int) -> Any:
        if sequence.params == BROKEN_PARAMS:
            raise ZeroDivisionError("no such position")
        return plain(sequence, start, end)

    monkeypatch.setattr(Sequence, "position_columns", positions)
    stream = llm.stream_chat(OTHER, OTHER_PARAMS)
    next(stream)
    with pytest.raises(RequestError, match="ZeroDivisionError: no such position"):
        llm.chat(BROKEN, BROKEN_PARAMS)
    assert list(stream)[-1].token_ids == alone.token_ids  # type: ignore[union-attr]


def test_a_token_that_cannot_be_taken_ends_its_request_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = llm.chat(OTHER, OTHER_PARAMS)
    plain = Detokenizer.push
    broken: list[Detokenizer] = []

    def push(self: Detokenizer, token: int) -> str:
        broken.append(self)
        if self is broken[0]:
            raise OverflowError("bad bytes")
        return plain(self, token)

    monkeypatch.setattr(Detokenizer, "push", push)
    admit = llm.parts.admission.chat
    sequences = [admit(BROKEN, BROKEN_PARAMS), admit(OTHER, OTHER_PARAMS)]
    for _ in llm.parts.engine.run(sequences):
        check_books(llm)
    assert sequences[0].finish is FinishReason.ERROR
    assert "OverflowError: bad bytes" in str(sequences[0].error)
    assert tuple(sequences[1].output_ids) == alone.token_ids


def test_what_a_request_with_broken_logits_computed_is_not_offered_to_others(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = type(llm.parts.model.adapter).logits
    monkeypatch.setattr(
        type(llm.parts.model.adapter),
        "logits",
        lambda self, hidden: plain(self, hidden) * float("nan"),
    )
    with pytest.raises(RequestError, match="nan"):
        llm.chat(BROKEN, BROKEN_PARAMS)
    monkeypatch.undo()
    assert llm.chat(BROKEN, BROKEN_PARAMS).usage.cached_tokens == 0


def test_a_thread_that_is_refused_takes_its_request_along_at_the_end_of_the_step(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = llm.chat(BROKEN, BROKEN_PARAMS)
    llm.flush_caches()
    stream = llm.stream_chat(OTHER, OTHER_PARAMS)
    next(stream)
    caught: list[BaseException] = []

    def second() -> None:
        try:
            list(stream)
        except BusyError as error:
            caught.append(error)

    plain, running = GraphRunner.run, []

    def run(self: GraphRunner, decision: Any) -> Any:
        if not caught:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            running.append(len(llm.parts.scheduler.running))
        return plain(self, decision)

    monkeypatch.setattr(GraphRunner, "run", run)
    assert llm.chat(BROKEN, BROKEN_PARAMS).token_ids == alone.token_ids
    assert len(caught) == 1
    assert running == [2]  # nobody's pages changed hands while the step ran


def test_a_request_that_is_added_twice_is_refused_and_goes_on(llm: LLM) -> None:
    sequence = llm.parts.admission.chat(BROKEN, BROKEN_PARAMS)
    run = llm.parts.engine.run([sequence])
    next(run)
    with pytest.raises(ValueError, match="once"):
        list(llm.parts.engine.run([sequence]))
    list(run)
    assert sequence.finish is FinishReason.LENGTH


def test_a_request_is_not_added_after_its_end(llm: LLM) -> None:
    sequence = llm.parts.admission.chat(BROKEN, BROKEN_PARAMS)
    llm.parts.engine.abort(sequence)
    assert sequence.finish is FinishReason.ABORT
    with pytest.raises(ValueError, match="after its end"):
        llm.parts.engine.add(sequence)


@pytest.mark.parametrize("error", [MemoryError("too large"), OSError("no file"), KeyError("grid")])
def test_a_picture_that_cannot_be_encoded_ends_its_request_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    alone = llm.chat(OTHER, OTHER_PARAMS)
    llm.flush_caches()
    adapter = type(llm.parts.model.adapter)
    plain = adapter.media_rows
    admit = llm.parts.admission.chat
    sequences = [admit(BROKEN, BROKEN_PARAMS), admit(OTHER, OTHER_PARAMS)]
    broken = sequences[0].prompt.artifacts[0]

    def media_rows(self: Any, artifacts: Any) -> Any:
        if any(artifact is broken for artifact in artifacts):
            raise error
        return plain(self, artifacts)

    monkeypatch.setattr(adapter, "media_rows", media_rows)
    for _ in llm.parts.engine.run(sequences):
        check_books(llm)
    assert sequences[0].finish is FinishReason.ERROR
    assert type(error).__name__ in str(sequences[0].error)
    assert tuple(sequences[1].output_ids) == alone.token_ids
