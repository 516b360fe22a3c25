"""State slots: one owner each, right states to resume from, and nothing lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firstlight.core.span import Span
from firstlight.errors import ConfigError, IntegrityError
from firstlight.memory.ids import VirtualPage
from firstlight.memory.prefix_key import MediaKey, PrefixKey
from firstlight.memory.state import (
    STATE_SINK,
    StateHolding,
    StateMemory,
    StateSlot,
    Track,
    cleared_after,
    tracking_values,
)
from firstlight.memory.state_integrity import check_states

PAGE = 4
PATH = [VirtualPage(page) for page in (7, 3, 9, 5)]  # the tree's ids of a prefix's pages


def memory_of(n_slots: int = 6, interval: int = PAGE) -> StateMemory:
    return StateMemory(n_slots, PAGE, interval=interval)


def started(memory: StateMemory, pages: int = 0, prompt: int = 100) -> StateHolding:
    holding = memory.start(PATH[:pages], prompt)
    assert holding is not None
    return holding


def key_of(n: int = 64, *media: tuple[int, int]) -> PrefixKey:
    items = [MediaKey(f"image {start}", (Span(0, start, end),)) for start, end in media]
    return PrefixKey(list(range(n)), items, PAGE)


def checkpointed(memory: StateMemory, *pages: int) -> None:
    """Put states behind the first ``pages`` pages of the path."""
    for n in pages:
        holding = started(memory)
        assert memory.plan(holding, key_of(), 0, n * PAGE) is not None
        memory.keep(holding)
        memory.publish(holding, PATH)
        memory.release(holding)


class Store:
    """One number per slot for a state; ``None`` for what nobody has cleared yet."""

    def __init__(self, n_slots: int) -> None:
        self.states: list[int | None] = [None] * n_slots

    def copy(self, source: StateSlot, target: StateSlot) -> None:
        self.states[target] = self.states[source]

    def clear(self, slot: StateSlot) -> None:
        self.states[slot] = 0


def after(state: int | None, token: int) -> int:
    """A recurrence in which order matters."""
    assert state is not None, "a state was read that nobody cleared or copied"
    return (state * 31 + token + 1) % 1_000_003


def folded(ids: list[int]) -> int:
    state: int | None = 0
    for token in ids:
        state = after(state, token)
    assert state is not None
    return state


# -- slots -------------------------------------------------------------------------------------


def test_the_sink_is_never_handed_out_and_every_other_slot_once() -> None:
    memory = memory_of(4)
    slots = [started(memory).slot for _ in range(3)]
    assert sorted(slots) == [1, 2, 3]
    assert memory.start([], 10) is None
    assert (memory.n_free, memory.usage().held) == (0, 3)


def test_a_released_request_gives_its_slot_back_once() -> None:
    memory = memory_of(3)
    holding = started(memory)
    memory.release(holding)
    memory.release(holding)
    check_states(memory)
    assert memory.usage().free == 2


@pytest.mark.parametrize(
    ("slots", "interval", "message"),
    [
        (1, 4, "state_slots = 1"),
        (4, 6, "state_interval = 6.*page_size = 4"),
        (4, 0, "interval = 0"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(
    slots: int, interval: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        StateMemory(slots, PAGE, interval=interval)


# -- when a checkpoint is taken ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "position"),
    [(0, 3, None), (0, 4, 4), (0, 11, 8), (8, 11, None), (7, 8, 8), (8, 9, None), (9, 20, 20)],
)
def test_a_step_tracks_the_last_page_boundary_that_it_passes(
    start: int, end: int, position: int | None
) -> None:
    memory = memory_of()
    track = memory.plan(started(memory), key_of(), start, end)
    assert (track.position if track else None) == position


def test_boundaries_are_multiples_of_the_interval() -> None:
    memory = memory_of(interval=3 * PAGE)
    holding = started(memory)
    assert memory.plan(holding, key_of(), 0, 11) is None
    track = memory.plan(holding, key_of(), 0, 30)
    assert track is not None
    assert track.position == 24


def test_no_checkpoint_lies_inside_a_picture() -> None:
    memory = memory_of()
    key = key_of(64, (6, 19), (21, 30))
    holding = started(memory)
    for end, position in ((20, 20), (21, 20), (24, 20), (30, 20), (18, 4)):
        track = memory.plan(holding, key, 0, end)
        assert track is not None
        assert track.position == position, end
        memory.drop(holding)
    assert memory.plan(holding, key, 20, 30) is None


def test_of_an_answer_only_the_newest_checkpoint_is_kept() -> None:
    memory, key = memory_of(), key_of()
    holding = started(memory, prompt=9)
    for start in range(0, 24, PAGE):
        memory.plan(holding, key, start, start + PAGE)
        memory.keep(holding)
    assert [track.position for track in holding.written] == [4, 8, 24]
    check_states(memory, [holding])


def test_without_a_slot_there_is_no_checkpoint_and_no_error() -> None:
    memory = memory_of(2)
    holding = started(memory)
    assert memory.plan(holding, key_of(), 0, 8) is None
    assert memory.usage().skipped == 1
    values = tracking_values([holding])
    assert not values["track_mask"].any()


def test_a_step_that_failed_leaves_no_checkpoint() -> None:
    memory = memory_of()
    holding = started(memory)
    memory.plan(holding, key_of(), 0, 8)
    with pytest.raises(ValueError, match="neither kept nor dropped"):
        memory.plan(holding, key_of(), 0, 8)
    memory.drop(holding)
    memory.publish(holding, PATH)
    assert memory.resumable(PATH) == 0
    check_states(memory, [holding])


# -- resuming ----------------------------------------------------------------------------------


def test_a_hit_resumes_at_the_longest_prefix_that_has_a_state() -> None:
    memory = memory_of()
    assert memory.resumable(PATH) == 0
    checkpointed(memory, 1, 3)
    assert memory.resumable(PATH) == 3 * PAGE
    assert memory.resumable(PATH[:2]) == PAGE
    assert memory.resumable([]) == 0
    with pytest.raises(ValueError, match=r"no state behind page 3; ask resumable"):
        memory.start(PATH[:2], 100)


def test_a_resumed_request_copies_the_state_and_others_may_too() -> None:
    memory, store = memory_of(), Store(6)
    checkpointed(memory, 2)
    (checkpoint,) = memory._checkpoints.values()
    store.states[checkpoint.slot] = 1234
    two = [started(memory, 2) for _ in range(2)]
    for holding in two:
        assert holding.resumed == 2 * PAGE
        memory.resume(holding, store)
        assert store.states[holding.slot] == 1234
    assert memory.usage().resumed == 2
    check_states(memory, two)


def test_a_request_from_the_start_gets_a_cleared_slot() -> None:
    memory, store = memory_of(2), Store(2)
    store.states[1] = 99  # what the last owner left
    memory.resume(started(memory), store)
    assert store.states == [None, 0]


def test_what_is_about_to_be_copied_is_not_evicted() -> None:
    memory = memory_of(3)
    checkpointed(memory, 1)
    first = started(memory, 1)
    assert memory.start([], 10) is None
    with pytest.raises(ValueError, match="1 requests are to resume behind page 7"):
        memory.forget(PATH[0])
    memory.resume(first, Store(3))
    assert memory.start([], 10) is not None
    assert memory.resumable(PATH) == 0
    assert memory.usage().evictions == 1


def test_a_start_that_finds_no_slot_takes_nothing() -> None:
    memory = memory_of(3)
    checkpointed(memory, 1)
    other = started(memory)
    assert memory.start(PATH[:1], 100) is None
    check_states(memory, [other])
    assert memory.resumable(PATH) == PAGE


def test_the_state_that_was_not_used_for_longest_goes_first() -> None:
    memory = memory_of(5)
    checkpointed(memory, 1, 2, 3)
    used = started(memory, 1)
    memory.resume(used, Store(5))
    started(memory)
    assert memory.resumable(PATH) == 3 * PAGE
    assert memory.resumable(PATH[:2]) == PAGE  # the second was the oldest


def test_an_evicted_page_takes_its_state_along() -> None:
    memory = memory_of()
    checkpointed(memory, 1, 2)
    memory.forget(PATH[1])
    memory.forget(PATH[3])  # has none
    assert memory.resumable(PATH) == PAGE
    check_states(memory)


def test_of_two_equal_states_one_is_kept() -> None:
    memory = memory_of()
    two = [started(memory) for _ in range(2)]
    for holding in two:
        memory.plan(holding, key_of(), 0, PAGE)
        memory.keep(holding)
    for holding in two:
        memory.publish(holding, PATH)
        memory.release(holding)
    check_states(memory)
    assert memory.usage().cached == 1


def test_states_wait_until_the_page_that_stands_for_them_is_cached() -> None:
    memory = memory_of()
    holding = started(memory)
    memory.plan(holding, key_of(), 0, 2 * PAGE)
    memory.keep(holding)
    memory.publish(holding, PATH[:1])
    assert memory.resumable(PATH) == 0
    memory.publish(holding, PATH[:2])
    assert memory.resumable(PATH) == 2 * PAGE
    memory.release(holding)
    check_states(memory)


# -- what a step is told -----------------------------------------------------------------------


def test_a_steps_values_have_the_types_of_the_slots_and_are_neutral_without_a_checkpoint() -> None:
    memory = memory_of()
    tracked, plain = started(memory), started(memory)
    memory.plan(tracked, key_of(), 0, 11)
    values = tracking_values([tracked, plain])
    assert {name: (str(v.dtype), v.shape) for name, v in values.items()} == {
        "state_indices": ("int64", (2,)),
        "track_indices": ("int64", (2,)),
        "track_mask": ("bool", (2,)),
        "track_seqlens": ("int32", (2,)),
    }
    assert tracked.planned is not None
    assert values["state_indices"].tolist() == [tracked.slot, plain.slot]
    assert values["track_indices"].tolist() == [tracked.planned.slot, STATE_SINK]
    assert values["track_mask"].tolist() == [True, False]
    assert values["track_seqlens"].tolist() == [8, 0]


def test_warming_up_leaves_the_dummys_state_cleared_also_when_it_fails() -> None:
    store = Store(3)

    def capture() -> None:
        with cleared_after(store):
            store.states[STATE_SINK] = 17
            raise RuntimeError

    with pytest.raises(RuntimeError):
        capture()
    assert store.states == [0, None, None]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m, h: m._free.append(h.slot), "has 2 owners"),
        (lambda m, h: m._free.pop(), "has 0 owners"),
        (lambda m, h: m._free.append(StateSlot(0)), "slot 0 has 1 owners"),
        (lambda m, h: m._free.append(StateSlot(60)), r"\[60\] are out of range"),
        (lambda m, h: h.written.append(Track(h.slot, 4)), "has 2 owners"),
        (lambda m, h: setattr(m._checkpoints[PATH[0]], "users", 2), "counts 2 users of 0"),
        (lambda m, h: m._idle.clear(), "is not idle"),
        (lambda m, h: m._idle.update({PATH[3]: None}), "no state behind page 5"),
        (lambda m, h: setattr(h, "released", True), "was released"),
    ],
)
def test_books_that_do_not_add_up_are_found(damage: object, message: str) -> None:
    memory = memory_of()
    checkpointed(memory, 1)
    holding = started(memory)
    check_states(memory, [holding])
    damage(memory, holding)  # type: ignore[operator]
    with pytest.raises(IntegrityError, match=message):
        check_states(memory, [holding])


# -- any order ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Running:
    holding: StateHolding
    ids: list[int]
    key: PrefixKey
    prompt: int
    computed: int = 0

    pages: list[VirtualPage] = field(default_factory=list)


ROWS = 3
WHICH = st.integers(0, 100)


class AnyOrder(RuleBasedStateMachine):
    """Requests over few tokens, so that they share prefixes; steps with padding rows; evictions."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = memory_of(8)
        self.store = Store(8)
        with cleared_after(self.store):
            pass
        self.running: list[Running] = []
        self.tree: dict[tuple[int, ...], VirtualPage] = {}
        self.minted = 0

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def begin(self, ids: list[int]) -> None:
        path = []
        for n in range(PAGE, len(ids), PAGE):
            if tuple(ids[:n]) not in self.tree:
                break
            path.append(self.tree[tuple(ids[:n])])
        path = path[: self.memory.resumable(path) // PAGE]
        holding = self.memory.start(path, len(ids))
        if holding is None:
            assert self.memory.n_free == 0 or (self.memory.n_free == 1 and path)
            return
        self.memory.resume(holding, self.store)
        key = PrefixKey(list(ids), [], PAGE)
        self.running.append(Running(holding, list(ids), key, len(ids), holding.resumed, path))

    @precondition(lambda self: self.running)
    @rule(n=st.integers(1, 9), fails=st.integers(0, 5))
    def step(self, n: int, fails: int) -> None:
        batch = self.running[:ROWS]
        ends = []
        for request in batch:
            end = min(request.computed + n, request.prompt)
            if request.computed >= request.prompt:  # decode
                request.key.extend([1])
                request.ids.append(1)
                end = len(request.ids)
            ends.append(end)
            self.memory.plan(request.holding, request.key, request.computed, end)
        if not fails:
            for request in batch:
                self.memory.drop(request.holding)
                self.memory.release(request.holding)
                self.running.remove(request)
            return
        values = tracking_values([request.holding for request in batch])
        padded = {k: np.pad(v, (0, ROWS - len(batch))) for k, v in values.items()}
        for row in range(ROWS):
            ids, first, last = [0], 0, 1
            if row < len(batch):
                ids, first, last = batch[row].ids, batch[row].computed, ends[row]
            for position in range(first, last):
                slot, token = padded["state_indices"][row], ids[position]
                self.store.states[slot] = after(self.store.states[slot], token)
                if padded["track_mask"][row] and padded["track_seqlens"][row] == position + 1:
                    self.store.states[padded["track_indices"][row]] = self.store.states[slot]
        for request, end in zip(batch, ends, strict=True):
            request.computed = end
            self.memory.keep(request.holding)

    @precondition(lambda self: self.running)
    @rule(which=WHICH, keep=st.booleans())
    def publish(self, which: int, keep: bool) -> None:
        request = self.running[which % len(self.running)]
        path = []
        for n in range(PAGE, request.computed + 1, PAGE):
            prefix = tuple(request.ids[:n])
            if prefix not in self.tree:
                self.minted += 1
                self.tree[prefix] = VirtualPage(self.minted)
            path.append(self.tree[prefix])
        self.memory.publish(request.holding, path)
        if not keep:
            self.running.remove(request)
            self.memory.release(request.holding)

    @precondition(lambda self: self.tree)
    @rule(which=WHICH)
    def evict(self, which: int) -> None:
        leaves = [p for p in self.tree if not any(q[: len(p)] == p != q for q in self.tree)]
        self.memory.forget(self.tree.pop(leaves[which % len(leaves)]))

    @invariant()
    def nothing_is_lost(self) -> None:
        check_states(self.memory, [request.holding for request in self.running])

    @invariant()
    def states_are_those_of_their_tokens(self) -> None:
        for request in self.running:
            assert self.store.states[request.holding.slot] == folded(
                request.ids[: request.computed]
            )
        names = {page: prefix for prefix, page in self.tree.items()}
        for page, checkpoint in self.memory._checkpoints.items():
            assert self.store.states[checkpoint.slot] == folded(list(names[page]))

    def teardown(self) -> None:
        for request in self.running:
            self.memory.release(request.holding)
        check_states(self.memory)
        assert self.memory.n_free == 7


AnyOrder.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
