"""What else is in the batch never changes a greedy answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion
from tests.cases.steps import letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Message, Part, tiny_llm, user
from tests.pictures import picture

PARAMS = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=2)
UNCLEAR = 1e-4


def crowd(pictures: bool, changed: int = 0) -> list[list[Message]]:
    """16 conversations: texts of 1 to 200 letters, some after one to three pictures.

    Args:
        changed: seed of the picture of conversation 5, which alone depends on it.
    """
    asked: list[list[Part]] = []
    for i in range(16):
        text = letters((1, 3, 17, 40, 63, 64, 65, 200)[i % 8], seed=i)
        shown: list[Part] = [
            picture(16 * (1 + k + i % 3), 32, seed=i + k) for k in range(i % 4 if pictures else 0)
        ]
        if pictures and i == 5:
            shown = [picture(48, 48, seed=900 + changed)]
        asked.append([*shown, text])
    if not pictures:
        asked[5] = [letters(40, seed=900 + changed)]
    return [user(*parts) for parts in asked]


def clear_steps(answer: Completion) -> int:
    """Steps before the first one that the two likeliest tokens leave unclear."""
    assert answer.logprobs is not None
    for step, entry in enumerate(answer.logprobs):
        if entry.top[0][1] - entry.top[1][1] < UNCLEAR:
            return step
    return len(answer.logprobs)


def assert_as_alone(answers: Sequence[Completion], alone: Sequence[Completion]) -> None:
    for answer, expected in zip(answers, alone, strict=True):
        n = clear_steps(expected)
        assert n >= 8, "choose another seed"
        assert answer.token_ids[:n] == expected.token_ids[:n]


def engine(family: str, checkpoints: TinyCheckpoint, *, cache: bool, eager: bool = False) -> LLM:
    """Room for all 16 at once; the first prefill step holds several of them."""
    buckets = {} if eager else {"prefill_buckets": (64, 256, 512), "decode_buckets": (1, 2, 8, 16)}
    return tiny_llm(
        checkpoints(family),
        max_num_seqs=16,
        max_batch_tokens=512,
        page_size=16,
        prefix_cache=cache,
        eager=eager,
        proof="off",
        **buckets,
    )


@pytest.mark.parametrize("family", ["qwen3_vl", "llama"])
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
def test_answers_alone_in_pairs_and_among_sixteen_are_the_same(
    family: str, cache: bool, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = engine(family, tiny_checkpoint, cache=cache)
    asked = crowd(pictures=family != "llama")
    alone = [llm.chat(messages, PARAMS) for messages in asked]
    assert len({answer.token_ids for answer in alone}) == len(asked), "choose other questions"
    for i in range(0, len(asked), 2):
        pair = [asked[i], asked[15 - i]]
        assert_as_alone(llm.chat(pair, PARAMS), [alone[i], alone[15 - i]])
    assert_as_alone(llm.chat(asked, PARAMS), alone)
    assert_as_alone(llm.chat(asked[::-1], PARAMS), alone[::-1])


@pytest.mark.parametrize("family", ["qwen3_vl", "llama"])
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "graphs"])
def test_one_changed_request_among_sixteen_changes_no_bit_of_the_others(
    family: str, eager: bool, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H32: with the prefix cache off, so that both rounds compute the same rows."""
    llm = engine(family, tiny_checkpoint, cache=False, eager=eager)
    pictures = family != "llama"
    one, other = (llm.chat(crowd(pictures, changed), PARAMS) for changed in (0, 1))
    assert one[5].token_ids != other[5].token_ids, "the test would not see a lost change"
    for i in range(16):
        if i != 5:
            assert one[i].token_ids == other[i].token_ids
            assert one[i].logprobs == other[i].logprobs


def test_one_changed_picture_among_sixteen_changes_no_other_answer_from_the_cache(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """H32: the second round finds all but the changed conversation in the prefix cache."""
    llm = engine("qwen3_vl", tiny_checkpoint, cache=True)
    one, other = (llm.chat(crowd(True, changed), PARAMS) for changed in (0, 1))
    assert one[5].token_ids != other[5].token_ids
    assert_as_alone([*other[:5], *other[6:]], [*one[:5], *one[6:]])
    cached = [answer.usage.cached_tokens for answer in other]
    assert cached[5] < 16, "its picture comes first"
    assert min(cached[7], cached[15]) >= 192
