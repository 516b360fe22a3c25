"""Limits that do not go together: refused at the start with both names, or brought into line."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight import LLM
from firstlight.errors import ConfigError
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, tiny_llm

TINY = {"page_size": 1, "kv_pages": 4, "max_num_seqs": 8}


def test_no_more_requests_run_than_there_are_pages(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("llama"), **TINY, prefill_buckets=None)
    assert [b for b in llm.parts.runners["decode"].buckets.sizes] == [1, 2, 3]  # type: ignore[index]
    answers = llm.generate(["a", "b", "c", "d"], GREEDY)
    assert all(len(answer.token_ids) == 2 for answer in answers)


def test_a_decode_bucket_for_more_requests_than_pages_is_refused_with_both_numbers(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    with pytest.raises(ConfigError, match=r"decode_buckets holds 8, .* at most 3 requests"):
        tiny_llm(tiny_checkpoint("llama"), **TINY, prefill_buckets=None, decode_buckets=(1, 4, 8))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"max_batch_tokens": 4, "max_num_seqs": 8}, ("max_batch_tokens = 4", "max_num_seqs = 8")),
        ({"kv_pages": 4, "max_context": 64}, ("kv_pages = 4", "max_context = 64")),
        (
            {"sliding_pages": 5, "max_batch_tokens": 64},
            ("sliding_pages = 5", "max_batch_tokens = 64"),
        ),
    ],
    ids=str,
)
def test_limits_that_contradict_each_other_are_refused_with_both_names(
    settings: dict[str, Any], names: tuple[str, str], tiny_checkpoint: TinyCheckpoint
) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(tiny_checkpoint("mistral"), page_size=4, eager=True, **settings)
    for name in names:
        assert name in str(caught.value)
