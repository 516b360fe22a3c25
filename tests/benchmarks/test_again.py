from __future__ import annotations

from benchmarks.again import again_rows
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm


def test_a_repeat_is_compared_with_the_steps_of_the_same_answers(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("llama")
    with tiny_llm(path, prefix_cache=True, proof="off", prefill_buckets=(64,)) as llm:
        rows = list(again_rows(llm, "tiny", rounds=1, lengths=(30,)))
    assert [row.name for row in rows] == [
        "first token of a repeat, 30 tokens, tiny",
        "step alone of a repeat, 30 tokens, tiny",
    ]
    assert all(row.note == "1 computed, decode graph of 1" for row in rows)
    assert rows[0].ours >= rows[1].ours > 0
    assert rows[0].theirs == rows[1].theirs
