"""The Python API: sampling, stopping, streaming, usage, timings, and errors that name the field."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight import LLM, SamplingParams
from firstlight.config import EngineConfig
from firstlight.core.output import Completion, FinishReason
from firstlight.errors import BusyError, ConfigError, MediaError, RequestError
from firstlight.media.artifact import Artifact
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, tiny_llm, user
from tests.pictures import picture

SMALL = picture(48, 32, seed=1)


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint("qwen3_vl"))


@pytest.fixture(autouse=True)
def pages_come_back(llm: LLM) -> object:
    """Whatever a test did, no request keeps pages."""
    yield
    assert llm.parts.kv.n_free == llm.parts.memory.n_pages - 1


def test_usage_counts_prompt_image_and_completion_tokens(llm: LLM) -> None:
    usage = llm.chat(user(SMALL, "What is it?"), GREEDY).usage
    assert usage.completion_tokens == 32
    assert 0 < usage.image_tokens < usage.prompt_tokens


def test_every_step_is_recorded_with_its_decision(llm: LLM) -> None:
    timings = llm.chat(user("Hello"), GREEDY).timings
    phases = [step.as_dict()["phase"] for step in timings.steps]
    assert phases == ["prefill"] + ["decode"] * 31
    assert 0 < timings.ttft_s <= timings.total_s


def test_the_seed_decides_whatever_the_neighbours(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, seed=11, max_tokens=12, ignore_eos=True)
    alone = llm.chat(user("Tell me."), params)
    beside = llm.chat([user("Another one entirely?"), user("Tell me.")], params)
    assert beside[1].token_ids == alone.token_ids
    other = SamplingParams(temperature=1.5, seed=12, max_tokens=12, ignore_eos=True)
    assert llm.chat(user("Tell me."), other).token_ids != alone.token_ids


def test_a_stop_string_ends_the_text_before_itself(llm: LLM) -> None:
    whole = llm.chat(user("Hello"), GREEDY).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 2]
    cut = llm.chat(
        user("Hello"), SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, stop=(stop,))
    )
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason is FinishReason.STOP


def test_a_stop_token_ends_the_answer(llm: LLM) -> None:
    ids = llm.chat(user("Hello"), GREEDY).token_ids
    cut = llm.chat(user("Hello"), SamplingParams(temperature=0, stop_token_ids=(ids[3],)))
    assert cut.token_ids == ids[: ids.index(ids[3]) + 1]
    assert cut.finish_reason is FinishReason.STOP


def test_logprobs_hold_the_chosen_token_and_its_rivals(llm: LLM) -> None:
    answer = llm.chat(user("Hello"), SamplingParams(temperature=0, max_tokens=3, logprobs=2))
    assert answer.logprobs is not None
    for token, entry in zip(answer.token_ids, answer.logprobs, strict=True):
        assert entry.token_id == token == entry.top[0][0]
        assert entry.logprob == entry.top[0][1] > entry.top[1][1]


def test_the_stream_joins_to_the_text(llm: LLM) -> None:
    *pieces, last = llm.stream_chat(user(SMALL, "What is it?"), GREEDY)
    assert isinstance(last, Completion)
    assert "".join(str(piece) for piece in pieces) == last.text


def test_a_stream_that_is_left_early_gives_its_pages_back(llm: LLM) -> None:
    stream = llm.stream_chat(user("Hello"), GREEDY)
    next(stream)
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [None, 5])
def test_streams_in_turns_give_what_each_gives_alone(llm: LLM, seed: int | None) -> None:
    params = SamplingParams(
        temperature=0 if seed is None else 1.2, seed=seed, max_tokens=12, ignore_eos=True
    )
    texts = ["Hello", "What is this? A longer question.", "Count"]
    alone = [llm.chat(user(text), params) for text in texts]
    streams = [llm.stream_chat(user(text), params) for text in texts]
    pieces: list[list[str]] = [[] for _ in streams]
    ends: dict[int, Completion] = {}
    while len(ends) < len(streams):
        for i, stream in enumerate(streams):
            piece = next(stream, None)
            if isinstance(piece, Completion):
                ends[i] = piece
            elif piece is not None:
                pieces[i].append(piece)
    for i, answer in enumerate(alone):
        assert ends[i].token_ids == answer.token_ids
        assert "".join(pieces[i]) == answer.text


def test_a_stream_that_is_closed_changes_nothing_for_the_other(llm: LLM) -> None:
    alone = llm.chat(user("Hello"), GREEDY)
    left, kept = (llm.stream_chat(user(text), GREEDY) for text in ("Count", "Hello"))
    next(kept)
    next(left)
    next(kept)
    left.close()  # type: ignore[attr-defined]
    *_, last = kept
    assert isinstance(last, Completion)
    assert last.token_ids == alone.token_ids


def test_a_second_thread_is_refused_and_the_first_keeps_its_answer(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = llm.chat(user("Hello"), GREEDY)
    adapter = llm.parts.model.adapter
    logits, refused = adapter.logits, []

    def meddle(hidden: torch.Tensor) -> torch.Tensor:
        def other() -> None:
            try:
                llm.chat(user("Count"), GREEDY)
            except BusyError as error:
                refused.append(error)

        if not refused:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return logits(hidden)

    monkeypatch.setattr(adapter, "logits", meddle)
    assert llm.chat(user("Hello"), GREEDY).token_ids == expected.token_ids
    assert "one LLM per thread" in str(refused[0])


def test_more_conversations_than_places_are_all_answered(llm: LLM) -> None:
    texts = [f"Question {i}?" for i in range(7)]
    together = llm.chat([user(t) for t in texts], GREEDY)
    alone = [llm.chat(user(t), GREEDY) for t in texts]
    assert [a.token_ids for a in together] == [a.token_ids for a in alone]


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(llm: LLM) -> None:
    limit = llm.parts.memory.max_context
    with pytest.raises(RequestError, match=rf"max_context = {limit}"):
        llm.chat(user("word " * limit), GREEDY)


def test_a_context_that_the_pool_limits_says_so(tiny_checkpoint: TinyCheckpoint) -> None:
    small = tiny_llm(tiny_checkpoint("llama"), eager=True, kv_pages=8)
    message = r"with max_context = 28 \(kv_pages = 8 limits it\) it may have at most 27"
    with pytest.raises(RequestError, match=message):
        small.chat(user("word " * 28), GREEDY)


def test_max_tokens_none_goes_on_to_the_end_of_the_context(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    short = tiny_llm(tiny_checkpoint("llama"), max_context=40, prefill_buckets=(32,))
    answer = short.generate(
        "a b c", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    )
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == 40
    assert answer.finish_reason is FinishReason.LENGTH


def test_an_unreadable_picture_is_named_by_its_place(llm: LLM, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a picture")
    message = [{"role": "user", "content": [{"type": "image", "image": str(broken)}]}]
    with pytest.raises(MediaError, match=r"messages\[0\]"):
        llm.chat(message, GREEDY)


def test_a_picture_for_a_text_model_is_refused(tiny_checkpoint: TinyCheckpoint) -> None:
    text_only = tiny_llm(tiny_checkpoint("llama"), prefill_buckets=(32,))
    with pytest.raises(MediaError, match="takes text only"):
        text_only.chat(user(SMALL, "What is it?"), GREEDY)


def test_one_request_that_fails_in_a_step_leaves_the_others_their_answers(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = llm.parts.model.adapter
    expected = llm.chat(user(SMALL, "What is it?"), GREEDY).token_ids
    llm.flush_caches()
    encode, bad = adapter.encode, picture(40, 24, seed=77)

    def without_a_row(artifacts: Sequence[Artifact]) -> list[torch.Tensor]:
        return [
            rows[:-1] if artifact.size == bad.size else rows
            for artifact, rows in zip(artifacts, encode(artifacts), strict=True)
        ]

    monkeypatch.setattr(adapter, "encode", without_a_row)
    broken, healthy = llm.chat([user(bad, "What is it?"), user(SMALL, "What is it?")], GREEDY)
    assert broken.finish_reason is FinishReason.ERROR
    assert broken.error is not None
    assert "rows" in broken.error
    assert healthy.token_ids == expected


def test_a_configuration_and_loose_settings_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="dtype"):
        LLM(config=EngineConfig(), dtype="float32")


def test_lists_of_prompts_and_pictures_must_match(llm: LLM) -> None:
    with pytest.raises(RequestError, match="1 entries for 2 prompts"):
        llm.generate(["a", "b"], GREEDY, images=[[]])


_HALF = "a\ud800"


@pytest.mark.parametrize(
    ("prompts", "images", "message"),
    [
        (5, None, "prompts is of type int; give a string, or a list of strings"),
        (None, None, "prompts is None; give a string"),
        ({"a": 1}, None, "prompts is of type dict"),
        ("a", SMALL, "images is of type Image; give a list of pictures"),
        ("a", Path("a.png"), "give a list of pictures"),
        ("a", "a.png", "give a list of pictures"),
        ("a", b"GIF", "give a list of pictures"),
        ("a", [None], "images\\[0\\]: a picture cannot be a NoneType"),
        ("a", [""], "images\\[0\\]: the picture is an empty string"),
        (["a", "b"], "ab", "give a list of pictures for each prompt"),
        (["a"], [SMALL], "images\\[0\\] is of type Image; give a list of pictures"),
        (["a"], [None], "images\\[0\\] is None; give a list of pictures"),
        (["a", 5], None, "prompts\\[1\\]: a prompt must be a string"),
        (["a", "b"], [[], ["no.png"]], "prompts\\[1\\]: images\\[0\\]: no such picture"),
        (_HALF, None, "the prompt is not valid Unicode"),
        (["a", _HALF], None, "prompts\\[1\\]: the prompt is not valid Unicode"),
    ],
)
def test_generate_says_what_to_give_and_where(
    llm: LLM, prompts: Any, images: Any, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        llm.generate(prompts, GREEDY, images=images)


@pytest.mark.parametrize("params", [{}, {"temperature": 0}, [GREEDY]])
def test_sampling_params_are_one_for_all(llm: LLM, params: Any) -> None:
    for call in (llm.chat, llm.stream_chat):
        with pytest.raises(RequestError, match="give one SamplingParams for all"):
            call(user("Hello"), params)
    with pytest.raises(RequestError, match="give one SamplingParams for all"):
        llm.generate(["Hello"], params)


def test_a_bad_conversation_of_a_list_is_located(llm: LLM) -> None:
    bad = [{"role": "user", "content": _HALF}]
    with pytest.raises(RequestError, match=r"conversations\[1\]: messages\[0\]\.content"):
        llm.chat([user("Hello"), bad], GREEDY)


def test_a_stream_is_checked_when_it_is_called(llm: LLM) -> None:
    for messages in ([], [{"role": "user", "content": _HALF}]):
        with pytest.raises(RequestError, match="messages"):
            llm.stream_chat(messages, GREEDY)


def test_a_text_takes_no_time_for_pictures(llm: LLM) -> None:
    answer = llm.chat(user("Hello"), SamplingParams(temperature=0, max_tokens=1))
    assert answer.timings.media_s == 0


def test_an_engine_is_not_pickled(llm: LLM) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(llm)
