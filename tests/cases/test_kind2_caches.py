"""Public faults of the prefix cache and the encoder cache (cases H07, H10, H11, H12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image
from torch import Tensor

from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.core.span import Span
from firstlight.errors import RequestError
from tests.cases.steps import (
    assert_idle,
    assert_same,
    assert_sensitive,
    caches,
    eager_llm,
    letters,
    params,
    settle,
)
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm
from tests.pictures import picture

FAMILIES = ["qwen3_vl", "llava", "mistral3", "idefics3", "gemma3_vl"]
PAGE = 4

Asked = tuple[str, Sequence[Image.Image]]


class Cached:
    """An engine with a prefix cache of small pages beside one that keeps nothing."""

    def __init__(self, checkpoints: TinyCheckpoint, family: str, **settings: Any) -> None:
        path = checkpoints(family)
        self.llm = tiny_llm(
            path, **{"page_size": PAGE, "prefix_cache": True, "proof": "off", **settings}
        )
        self.plain = eager_llm(path)
        self.mark = self.llm.parts.model.adapter.placeholder

    def spans(self, text: str, images: Sequence[Image.Image]) -> tuple[Span, ...]:
        """Where the pictures are."""
        return self.llm.parts.admission.text(text, images, params()).prompt.spans

    def reference(self, text: str, images: Sequence[Image.Image]) -> Completion:
        """The answer of the engine without caches."""
        return self.plain.generate(text, params(), images=images)

    def ask(self, text: str, images: Sequence[Image.Image]) -> int:
        """Check the answer against the reference; returns the tokens that were cached."""
        answer = self.llm.generate(text, params(), images=images)
        assert_same(answer, self.reference(text, images))
        return answer.usage.cached_tokens


# -- H07 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_text_about_another_picture_is_not_answered_from_the_first(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H07: the hit ends before the placeholder for another picture, behind it for the same one."""
    both = Cached(tiny_checkpoint, family)
    text = letters(9) + both.mark + letters(21, seed=1)
    one, other = ([picture(48, 32, seed=seed)] for seed in (1, 2))
    assert_sensitive(both.reference(text, one), both.reference(text, other))
    spans = both.spans(text, one)
    assert both.ask(text, one) == 0
    assert PAGE <= both.ask(text, other) <= spans[0].start
    assert both.ask(text, one) >= spans[-1].end
    assert both.ask(text, other) >= spans[-1].end
    assert_idle(both.llm)


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_that_change_places_or_words_are_told_apart(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H07: swapped, shown twice, one of two changed, under other words; each asked twice."""
    both = Cached(tiny_checkpoint, family)
    a, b, c = (picture(48, 32, seed=seed) for seed in (1, 2, 3))
    text = letters(5) + both.mark + letters(6, seed=1) + both.mark + letters(8, seed=2)
    words = letters(5) + both.mark + letters(7, seed=8) + both.mark + letters(8, seed=2)
    shown = [[a, b], [b, a], [a, a], [a, c], [c, b]]
    firsts = [both.reference(text, images) for images in shown]
    for i, first in enumerate(firsts):
        for second in firsts[:i]:
            assert_sensitive(first, second)
    end = both.spans(text, [a, b])[-1].end
    for images in shown:
        assert both.ask(text, images) < end
        assert both.ask(words, images) < end
    for images in shown:
        assert both.ask(text, images) >= end
    assert_idle(both.llm)


def test_a_follow_up_reuses_the_pages_of_question_and_answer(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H07: the next turn of a conversation computes what is new in it."""
    both = Cached(tiny_checkpoint, "qwen3_vl")
    images = [picture(48, 32, seed=1)]
    text = letters(9) + both.mark + letters(21, seed=1)
    answer = letters(12, seed=3)
    ids = both.llm.parts.model.tokenizer(answer)["input_ids"]
    adapter = both.llm.parts.model.adapter
    plain, wanted = adapter.logits, iter(ids)

    def forced(hidden: Tensor) -> Tensor:
        scores: Tensor = plain(hidden).clone()
        scores[-1, next(wanted)] = 1e4
        return scores

    with monkeypatch.context() as patch:
        patch.setattr(adapter, "logits", forced)
        said = both.llm.generate(text, params(12), images=images)
    assert said.token_ids == tuple(ids)
    prompt = said.usage.prompt_tokens
    cached = both.ask(text + answer + letters(5, seed=4), images)
    # The last token of an answer is never computed.
    assert cached == prompt + 11


# -- H10 ---------------------------------------------------------------------------------------


ROWS, START, LARGE = 40, 10, 16


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("tail", ["abc", letters(30)], ids=["short", "long"])
def test_a_hit_whose_last_pages_are_gone_never_ends_inside_the_picture(
    left: int, tail: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H10: 40 rows from token 10 on, pages of 16; only the first ``left`` pages are still there."""
    pages = 12
    both = Cached(
        tiny_checkpoint,
        "qwen3_vl",
        page_size=LARGE,
        kv_pages=1 + pages,
        max_context=pages * LARGE,
        max_num_seqs=1,
        prefill_buckets=(64, 192),
    )
    shown = [picture(80, 128, seed=1)]
    text = letters(START) + both.mark
    (span,) = both.spans(text + tail, shown)
    assert (span.start, len(span)) == (START, ROWS)
    assert both.ask(text + tail, shown) == 0
    n = len(both.llm.parts.admission.text(text + tail, shown, params()).prompt.ids)
    kept = (n + 7) // LARGE
    if left < kept:
        # Somebody who needs all pages but the first ones takes the others, the last ones first.
        both.ask(letters((pages - left) * LARGE - 8, seed=5), [])
        found = left * LARGE
        expected = found if found >= START + ROWS else min(found, START)
    else:
        expected = n - 1
    assert both.ask(text + tail, shown) == expected
    assert both.ask(text + "xyz", shown) == START + ROWS
    assert_idle(both.llm)


# -- H11 ---------------------------------------------------------------------------------------


def count_encodings(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each picture is encoded from now on, by its digest."""
    counts: Counter[str] = Counter()
    adapter = llm.parts.model.adapter
    plain = adapter.media_rows

    def media_rows(artifacts: Sequence[Any]) -> list[Tensor]:
        counts.update(artifact.digest for artifact in artifacts)
        rows: list[Tensor] = plain(artifacts)
        return rows

    monkeypatch.setattr(adapter, "media_rows", media_rows)
    return counts


def encoder_bytes(llm: LLM, image: Image.Image) -> int:
    """What the rows of one picture take."""
    adapter = llm.parts.model.adapter
    (artifact,) = llm.parts.admission.text(adapter.placeholder, [image], params()).prompt.artifacts
    (rows,) = adapter.media_rows([artifact])
    return rows.nbytes


@pytest.mark.parametrize("room", [1, 0], ids=["room for one", "no room"])
def test_a_picture_shown_twice_in_a_prompt_is_encoded_once_if_there_is_room_for_it(
    room: int, tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: its places lie in different chunks, and another picture wants the same room."""
    path = tiny_checkpoint("qwen3_vl")
    one, other = picture(64, 64, seed=1), picture(64, 64, seed=2)
    plain = eager_llm(path)
    capacity = room * encoder_bytes(plain, one)
    llm = tiny_llm(
        path,
        max_batch_tokens=32,
        prefill_buckets=(32,),
        proof="off",
        encoder_cache_bytes=capacity,
    )
    mark = llm.parts.model.adapter.placeholder
    twice = mark + letters(70, seed=1) + mark + letters(4, seed=2)
    once = letters(3) + mark + letters(60, seed=3)
    asked: list[tuple[str, list[Image.Image]]] = [(twice, [one, one]), (once, [other])]
    expected = [plain.generate(t, params(), images=shown) for t, shown in asked]
    swapped = plain.generate(twice, params(), images=[one, other])
    assert_sensitive(expected[0], swapped)
    counts = count_encodings(llm, monkeypatch)
    answers = llm.generate([t for t, _ in asked], params(), images=[shown for _, shown in asked])
    for answer, reference in zip(answers, expected, strict=True):
        assert_same(answer, reference)
    usage = llm.parts.encoder.usage()
    if room:
        assert max(counts.values()) == 1 or counts.most_common()[-1][1] == 1
        assert usage.cache.pinned == usage.requests == 0
        assert usage.cache.bytes <= capacity
    else:
        assert usage.reencoded > 0
        assert usage.cache.entries == 0
    assert_idle(llm)


# -- H12 ---------------------------------------------------------------------------------------


def test_a_refused_request_leaves_every_cache_as_it_was(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """H12: too long with a picture; the picture alone; then 50 others that push it out."""
    path = tiny_checkpoint("qwen3_vl")
    plain = eager_llm(path)
    one = picture(64, 48, seed=1)
    size = encoder_bytes(plain, one)
    llm = tiny_llm(
        path,
        max_context=128,
        prefill_buckets=(64,),
        proof="off",
        prefix_cache=True,
        encoder_cache_bytes=5 * size,
    )
    mark = llm.parts.model.adapter.placeholder
    before = caches(llm)
    with pytest.raises(RequestError, match="max_context = 128"):
        llm.generate(mark + letters(140), params(), images=[one])
    assert caches(llm) == before
    short = mark + "What?"
    assert_same(
        llm.generate(short, params(), images=[one]), plain.generate(short, params(), images=[one])
    )
    for seed in range(2, 52):
        sequence = llm.parts.admission.text(short, [picture(64, 48, seed=seed)], params(2))
        llm.parts.engine.add(sequence)
        settle(llm, within=20)
        assert sequence.error is None
        assert len(sequence.output_ids) == 2
    usage = llm.parts.encoder.usage().cache
    assert usage.bytes == usage.entries * size <= 5 * size
    assert usage.evictions == 51 - usage.entries
    assert_same(
        llm.generate(short, params(), images=[one]), plain.generate(short, params(), images=[one])
    )
    assert_idle(llm)
