"""Plays the engine around a scheduler, and checks every plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Phase
from firstlight.engine.scheduling import Limits, PagedMemory, Scheduler
from tests.engine.scheduling.fakes import CountedMemory, Encoder, Request

Plan = BatchPlan[Request]


@dataclass(slots=True)
class Seen:
    """What the plans said of one request."""

    computed: int = 0  # where its next chunk has to begin, if it has not been computed again
    first_token: int | None = None  # the step that gave it
    left_out: int = 0  # steps in a row without a row, though it generates


@dataclass(slots=True)
class Loop:
    """Computes what is planned; each finished chunk yields the next token."""

    memory: PagedMemory
    limits: Limits
    encoder: Encoder = field(default_factory=Encoder)
    scheduler: Scheduler[Request] = field(init=False)
    plans: list[Plan] = field(default_factory=list)
    live: list[Request] = field(default_factory=list)
    seen: dict[Request, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.memory, self.limits, self.encoder)

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add(request)
            self.live.append(request)
            self.seen[request] = Seen()

    def remove(self, request: Request, *, keep: bool = True) -> None:
        self.scheduler.remove(request, keep=keep)
        if request in self.live:
            self.live.remove(request)

    def plan(self) -> Plan | None:
        """The next plan, checked."""
        running = [r for r in self.live if r.holding is not None]
        plan = self.scheduler.next_batch()
        if plan is None:
            assert not self.live, f"nothing is planned for {self.live}"
            return None
        self._check(plan, running)
        self.plans.append(plan)
        return plan

    def finish(self, plan: Plan) -> None:
        """The plan was computed: commit, sample, close."""
        for chunk in plan.chunks:
            for need in chunk.request.needs:
                if any(s.clip(chunk.start, chunk.end) for s in need.spans):
                    self.encoder.cached.add(need.key)
        self.scheduler.commit(plan)
        self.scheduler.publish(plan)
        for chunk in plan.chunks:
            request = chunk.request
            if request not in self.live:
                continue
            assert request.computed == chunk.end
            if chunk.end == request.length:
                if self.seen[request].first_token is None:
                    self.seen[request].first_token = len(self.plans)
                request.key.extend([7 * request.length + request.arrival])  # the ids are the key's
                if request.finished:
                    self.remove(request)

    def step(self) -> bool:
        """One step; False when there is nothing to do."""
        plan = self.plan()
        if plan is None:
            return False
        self.finish(plan)
        return True

    def run(self, bound: int = 10_000) -> None:
        """Steps until all is done; at most ``bound`` of them."""
        for _ in range(bound):
            if not self.step():
                return
        raise AssertionError(f"not done after {bound} steps: {self.live}")

    def shapes(self) -> list[list[tuple[int, int, int]]]:
        """(arrival, start, end) of each chunk of each plan."""
        return [[(c.request.arrival, c.start, c.end) for c in p.chunks] for p in self.plans]

    def _check(self, plan: Plan, running: list[Request]) -> None:
        requests = [chunk.request for chunk in plan.chunks]
        assert requests
        assert len(set(requests)) == len(requests), "a request twice in one step"
        assert all(request in self.live for request in requests)
        assert plan.tokens <= self.limits.max_batch_tokens
        now = [r for r in self.live if r.holding is not None]
        assert len(now) <= self.limits.max_num_seqs
        lengths = {len(chunk) for chunk in plan.chunks}
        assert plan.phase is (Phase.DECODE if lengths == {1} else Phase.PREFILL)
        for chunk in plan.chunks:
            self._check_chunk(chunk.request, chunk.start, chunk.end)
        self._check_encoder(plan)
        self._check_order(plan)
        self._check_left_out(plan, running)

    def _check_chunk(self, request: Request, start: int, end: int) -> None:
        assert start == request.computed < end <= request.length
        holding = request.holding
        assert holding is not None
        assert len(holding.pages) * self.memory.page_size >= end
        assert start >= holding.cached
        for first, last in request.blocks:
            assert not first < start < last, "a chunk begins inside a block"
            assert not first < end < last, "a chunk ends inside a block"

    def _check_encoder(self, plan: Plan) -> None:
        rows = {
            need.key: need.rows
            for chunk in plan.chunks
            for need in chunk.request.needs
            if need.key not in self.encoder.cached
            and any(s.clip(chunk.start, chunk.end) for s in need.spans)
        }
        assert len(rows) <= 1 or sum(rows.values()) <= self.limits.max_encoder_rows

    def _check_order(self, plan: Plan) -> None:
        """Whoever runs arrived before whoever waits."""
        running = [r.arrival for r in self.live if r.holding is not None]
        waiting = [r.arrival for r in self.live if r.holding is None]
        assert not running or not waiting or max(running) < min(waiting)

    def _check_left_out(self, plan: Plan, running: list[Request]) -> None:
        planned = {chunk.request for chunk in plan.chunks}
        wide = any(
            chunk.start <= first and last <= chunk.end
            for chunk in plan.chunks
            for first, last in chunk.request.blocks
        )
        still = [r for r in running if r.holding is not None]
        for request in still:
            seen = self.seen[request]
            generates = request.computed >= request.prompt_length
            if request in planned or not generates:
                seen.left_out = 0
                continue
            youngest = request is max(still, key=lambda r: r.arrival)
            if not youngest:
                assert wide, "a decode row gives way to nothing but a block"
                seen.left_out += 1
                assert seen.left_out <= 1, "a decode row is left out twice in a row"


def loop(
    memory: CountedMemory | None = None, *, seqs: int = 4, tokens: int = 8, rows: int = 64
) -> Loop:
    """A loop over a memory that only counts, by default one with room for all."""
    limits = Limits(max_num_seqs=seqs, max_batch_tokens=tokens, max_encoder_rows=rows)
    return Loop(memory or CountedMemory(100), limits)
