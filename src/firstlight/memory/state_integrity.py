"""Does the bookkeeping of state slots add up?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from firstlight.errors import IntegrityError
from firstlight.memory.state import STATE_SINK, StateHolding, StateMemory


def check_states(memory: StateMemory, holdings: Sequence[StateHolding] = ()) -> None:
    """Compare the memory's books with ``holdings``, all that are not released.

    Raises:
        IntegrityError: names everything that does not add up.
    """
    findings = [*_owners(memory, holdings), *_users(memory, holdings)]
    if findings:
        raise IntegrityError(findings)


def _owners(memory: StateMemory, holdings: Sequence[StateHolding]) -> Iterator[str]:
    """Every slot but the sink has exactly one owner."""
    owners: Counter[int] = Counter(memory._free)
    owners.update(checkpoint.slot for checkpoint in memory._checkpoints.values())
    for n, holding in enumerate(holdings):
        if holding.released:
            yield f"request {n} was released and is said to be running"
        owners[holding.slot] += 1
        owners.update(track.slot for track in holding.written)
        if holding.planned is not None:
            owners[holding.planned.slot] += 1
    for slot in range(memory.n_slots):
        wanted = 0 if slot == STATE_SINK else 1
        if owners[slot] != wanted:
            yield f"state slot {slot} has {owners[slot]} owners and should have {wanted}"
    beyond = sorted(slot for slot in owners if not 0 <= slot < memory.n_slots)
    if beyond:
        yield f"state slots {beyond} are out of range"


def _users(memory: StateMemory, holdings: Sequence[StateHolding]) -> Iterator[str]:
    """Checkpoints are referred to by those who are to copy them, and idle otherwise."""
    users = Counter(h.source for h in holdings if h.source is not None)
    for page, checkpoint in memory._checkpoints.items():
        if checkpoint.users != users[page]:
            yield f"the state behind page {page} counts {checkpoint.users} users of {users[page]}"
        if (page in memory._idle) == bool(users[page]):
            yield f"the state behind page {page} is {'in use and' if users[page] else 'not'} idle"
    for page in (memory._idle.keys() | users.keys()) - memory._checkpoints.keys():
        yield f"there is no state behind page {page}"
