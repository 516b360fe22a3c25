"""Every prompt length gives the ids that eager gives, whatever bucket it is padded to."""

from __future__ import annotations

from firstlight import LLM, SamplingParams
from firstlight.core.reason import Mode
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm

FEW = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


def prompts(llm: LLM, lengths: range) -> list[str]:
    """One prompt of each length in tokens."""
    tokenizer = llm.parts.model.tokenizer
    made = []
    for n in lengths:
        text = "a" * n
        while len(tokenizer(text)["input_ids"]) < n:
            text += "bc"[len(text) % 2]
        ids = tokenizer(text)["input_ids"][:n]
        made.append(tokenizer.decode(ids))
    return made


def test_every_length_from_1_to_300_equals_eager(tiny_checkpoint: TinyCheckpoint) -> None:
    path = tiny_checkpoint("qwen3_vl")
    graphs = tiny_llm(path, prefill_buckets=None, max_prefill_bucket=320)
    eager = tiny_llm(path, eager=True)
    lengths = set()
    for text in prompts(graphs, range(1, 301)):
        answer, expected = graphs.generate(text, FEW), eager.generate(text, FEW)
        assert answer.token_ids == expected.token_ids
        assert {s.decision.mode for s in answer.timings.steps} == {Mode.GRAPH}
        assert {s.decision.mode for s in expected.timings.steps} == {Mode.EAGER}
        lengths.add(answer.usage.prompt_tokens)
    assert len(lengths) >= 290


def test_a_prompt_longer_than_a_step_is_prefilled_in_chunks_with_the_same_answer(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("qwen3_vl")
    whole = tiny_llm(path)
    chunked = tiny_llm(path, prefill_buckets=(16, 32), max_batch_tokens=32)
    text = prompts(whole, range(150, 151))[0]
    answer = chunked.generate(text, FEW)
    assert answer.token_ids == whole.generate(text, FEW).token_ids
    assert [s.decision.tokens for s in answer.timings.steps][:5] == [32, 32, 32, 32, 22]
