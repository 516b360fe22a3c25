"""What the cases share: asking, comparing, watching steps, and forcing where chunks end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion
from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Decision, Phase
from firstlight.engine.sequence import Sequence as Request
from firstlight.engine.step import Step, StepResult
from firstlight.graphs import GraphRunner
from firstlight.memory import integrity
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, tiny_llm, user

RIVALS = 3


def params(tokens: int = 8) -> SamplingParams:
    """Greedy, with log probabilities to compare."""
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, logprobs=RIVALS)


def ask(llm: LLM, *parts: Part, tokens: int = 8) -> Completion:
    """One user turn of texts and pictures."""
    return llm.chat(user(*parts), params(tokens))


def letters(n: int, seed: int = 0) -> str:
    """A text of ``n`` tokens in the tiny vocabularies, which know no pair of these letters."""
    return "".join(random.Random(seed).choices("BFGJKLNPQSVXYZ0123456789", k=n))


def eager_llm(path: Path, **settings: Any) -> LLM:
    """The reference: no graph, no cache, and steps long enough for every prompt of the cases."""
    nothing: dict[str, Any] = {"encoder_cache_bytes": 0, "artifact_cache_bytes": 0}
    return tiny_llm(path, eager=True, fuse=False, **{**nothing, **settings})


class Pair:
    """A captured engine and its eager reference per family, built when first asked for."""

    def __init__(self, checkpoints: TinyCheckpoint) -> None:
        self._checkpoints = checkpoints
        self._held: dict[str, tuple[LLM, LLM]] = {}

    def get(self, family: str) -> tuple[LLM, LLM]:
        """The captured engine and the eager one."""
        if family not in self._held:
            path = self._checkpoints(family)
            self._held[family] = (tiny_llm(path), eager_llm(path))
        return self._held[family]


def difference(answer: Completion, expected: Completion) -> float:
    """The largest difference of the log probabilities of the tokens and of their rivals."""
    assert answer.logprobs is not None
    assert expected.logprobs is not None
    worst = 0.0
    for a, b in zip(answer.logprobs, expected.logprobs, strict=True):
        worst = max(worst, abs(a.logprob - b.logprob))
        pairs = zip(a.top, b.top, strict=True)
        worst = max(worst, *(abs(x[1] - y[1]) for x, y in pairs))
    return worst


def assert_same(answer: Completion, expected: Completion) -> None:
    """Equal ids, and log probabilities within 1e-4 (fp32 on a CPU)."""
    assert answer.token_ids == expected.token_ids
    assert difference(answer, expected) <= 1e-4


def assert_sensitive(one: Completion, other: Completion) -> None:
    """The control of every test with pictures: another picture moves the first token's scores."""
    assert one.logprobs is not None
    assert other.logprobs is not None
    first = (one.logprobs[0].top, other.logprobs[0].top)
    moved = max(abs(a[1] - b[1]) for a, b in zip(*first, strict=True))
    assert moved > 1e-3, "the test would not see a lost picture"


def assert_sound(llm: LLM, requests: Sequence[Request] = ()) -> None:
    """The memory's books add up while ``requests`` are all that the engine has."""
    held = [request.holding for request in requests if request.holding is not None]
    integrity.check(llm.parts.kv, held)


def assert_idle(llm: LLM) -> None:
    """No request holds pages or pictures, waits or runs; the books add up."""
    stats, encoder = llm.parts.scheduler.stats, llm.parts.encoder.usage()
    assert (stats.waiting, stats.running) == (0, 0)
    assert (encoder.requests, encoder.cache.pinned) == (0, 0)
    usage = llm.parts.kv.usage()
    assert [space.held for space in (usage.pages, *usage.sides)] == [0] * (1 + len(usage.sides))
    assert_sound(llm)


def caches(llm: LLM) -> tuple[object, ...]:
    """What every cache holds and has counted."""
    return llm.parts.kv.usage(), llm.parts.encoder.usage()


def settle(llm: LLM, within: int) -> None:
    """Step until nothing is left to do.

    Args:
        within: steps that this may take, lest a cache that evicts for ever hang the test.
    """
    for _ in range(within):
        if not llm.parts.engine.step():
            return
    raise AssertionError(f"still busy after {within} steps")


@dataclass(frozen=True)
class Fed:
    """What one step gave the body: its chunks and copies of the live rows of its slots."""

    chunks: tuple[Chunk[Request], ...]
    decision: Decision
    slots: dict[str, Tensor]

    @property
    def phase(self) -> Phase:
        return self.decision.phase

    def rows(self, request: Request) -> slice:
        """The rows of the batch that belong to a request."""
        start = 0
        for chunk in self.chunks:
            if chunk.request is request:
                return slice(start, start + len(chunk))
            start += len(chunk)
        raise KeyError(request)


def watch(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[Fed]:
    """Record every step from now on, with the slots ``names`` as the body saw them."""
    seen: list[Fed] = []
    plans: list[BatchPlan[Request]] = []
    step_run, runner_run = Step.run, GraphRunner.run

    def step(self: Step, plan: BatchPlan[Request]) -> StepResult:
        plans.append(plan)
        return step_run(self, plan)

    def run(self: GraphRunner, decision: Decision) -> Tensor:
        extent = self.extent(decision.padded)
        slots = {name: self.registry.view(name, extent).clone() for name in names}
        seen.append(Fed(plans[-1].chunks, decision, slots))
        return runner_run(self, decision)

    monkeypatch.setattr(Step, "run", step)
    monkeypatch.setattr(GraphRunner, "run", run)
    return seen


def before_each_step(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[BatchPlan[Request]], None]
) -> None:
    """Call ``act`` with each plan before it runs."""
    step_run = Step.run

    def step(self: Step, plan: BatchPlan[Request]) -> StepResult:
        act(plan)
        return step_run(self, plan)

    monkeypatch.setattr(Step, "run", step)


def after_each_step(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[BatchPlan[Request]], None]
) -> None:
    """Call ``act`` with each plan after it ran."""
    step_run = Step.run

    def step(self: Step, plan: BatchPlan[Request]) -> StepResult:
        result = step_run(self, plan)
        act(plan)
        return result

    monkeypatch.setattr(Step, "run", step)


def set_chunk(llm: LLM, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Steps of at most ``tokens`` from now on, as ``max_batch_tokens`` would make them.

    An engine per chunk size would capture the same graphs again and again.
    """
    scheduler = llm.parts.scheduler
    assert tokens <= llm.parts.runners[Phase.PREFILL].registry.capacity.tokens
    seqs = min(scheduler._limits.max_num_seqs, tokens)
    limits = replace(scheduler._limits, max_batch_tokens=tokens, max_num_seqs=seqs)
    monkeypatch.setattr(scheduler, "_limits", limits)


def fed_to(
    seen: Sequence[Fed], name: str, phase: Phase = Phase.PREFILL
) -> list[tuple[Request, Tensor]]:
    """Per chunk, the request and its rows of a slot, in the order of the steps.

    A prompt's last token alone is a step of one row and runs by the decode graph; here it counts as
    what it is, a part of the prompt.
    """
    found = []
    for fed in seen:
        for chunk in fed.chunks:
            request = chunk.request
            if (chunk.end <= request.prompt_length) is not (phase is Phase.PREFILL):
                continue
            rows, slot = fed.rows(request), fed.slots[name]
            found.append((request, slot[:, rows] if name == "positions" else slot[rows]))
    return found
