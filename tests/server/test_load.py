"""Many clients at once, some of which leave and some of which ask for nonsense (case H32).

``scripts/load`` does the same to a process of its own, for as long as one likes.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from tools.load.asked import all_asked
from tools.load.bad import all_bad
from tools.load.checks import of_answers
from tools.load.client import Client, Work
from tools.load.compare import Spread
from tools.load.run import lone_answers
from tools.load.tally import Tally

from firstlight.engine.build import Parts
from tests.server.running import running

CLIENTS = 8


def under_load(parts: Parts, seconds: float, distinct: int) -> Tally:
    """What became of the requests of all clients; nothing of any is left."""
    with running(parts, max_waiting=CLIENTS) as server:
        # The long texts are too long for a tokenizer that has a token or two for every syllable.
        asked = [a for a in all_asked(1, distinct + 10)[10:] if a.kind != "long text"]
        pairs = lone_answers(server.url, asked)
        bad = all_bad(1, parts.memory.max_context)
        work = Work(server.url, pairs, bad, Tally(), Spread(), deadline_s=60)
        until = time.monotonic() + seconds

        async def all_clients() -> None:
            clients = [Client(work, seed) for seed in range(CLIENTS)]
            await asyncio.gather(*(c.run(lambda: time.monotonic() < until) for c in clients))

        asyncio.run(all_clients())
        assert server.idle()
        assert server.service.engine.loop.faults == 0
        assert server.service.parts.kv.usage().pages.held == 0
        with server.client() as http:
            assert http.get("/health").status_code == 200
    assert [check for check in of_answers(work.tally) if not check.holds] == []
    return work.tally


def test_every_answer_under_load_is_the_one_that_its_request_gets_alone(parts: Parts) -> None:
    assert under_load(parts, 0.5, 11).answers >= CLIENTS


@pytest.mark.slow
def test_the_same_for_a_minute(parts: Parts) -> None:
    tally = under_load(parts, 60, 60)
    kinds = ("whole", "streamed", "read slowly", "left", "refused as it should be")
    assert min(tally.fine[kind] for kind in kinds) >= 5
