"""What a plan costs: it is made before every step, while the device waits."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import pytest

from firstlight.engine.scheduling import Limits, Scheduler
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout
from tests.engine.scheduling.fakes import Encoder, Request, request


@pytest.mark.slow
@pytest.mark.parametrize("windows", [[None], [None, 512]])
def test_a_plan_for_sixteen_decodes_and_its_commit_take_under_120_microseconds(
    windows: list[int | None],
) -> None:
    layout = KVLayout.of(windows, 4096)
    memory = KVMemory(layout, 2001, [2001] * len(layout.sides), 16, True)
    limits = Limits(max_num_seqs=16, max_batch_tokens=1024, max_encoder_rows=1024)
    scheduler: Scheduler[Request] = Scheduler(memory, limits, Encoder())
    requests = [request(i, 40, 600, page_size=16) for i in range(16)]
    for one in requests:
        scheduler.add(one)
    seconds = []
    for _ in range(500):
        began = perf_counter()
        plan = scheduler.next_batch()
        assert plan is not None
        scheduler.commit(plan)
        scheduler.publish(plan)
        seconds.append(perf_counter() - began)
        for one in requests:
            one.key.extend([1])
    assert median(seconds) < 120e-6
