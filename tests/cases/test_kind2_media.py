"""Public faults of placeholders and media (cases H08, H09, H13, H14, H17), through the engine."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from firstlight import LLM
from firstlight.core.output import Completion, FinishReason
from firstlight.core.reason import Phase
from firstlight.core.span import Span
from firstlight.errors import MediaError
from tests.cases.steps import (
    Pair,
    ask,
    assert_idle,
    assert_same,
    assert_sensitive,
    fed_to,
    letters,
    params,
    set_chunk,
    watch,
)
from tests.conftest import TinyCheckpoint
from tests.engine.engines import user
from tests.pictures import picture

FAMILIES = ["qwen3_vl", "llava", "mistral3", "idefics3"]


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: TinyCheckpoint) -> Pair:
    return Pair(tiny_checkpoint)


# -- H08 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_typed_placeholder_changes_no_binding(
    role: str, times: int, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H08: the picture lands in its own span, and the answer is that of a prompt made by hand."""
    llm, eager = pair.get("qwen3_vl")
    typed = "<|image_pad|>" * times
    shown = picture(48, 32, seed=1)
    parts = [
        {"type": "text", "text": f"explain the tag {typed} please"},
        {"type": "image", "image": shown},
        {"type": "text", "text": "and <image>"},
    ]
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": parts}]
    if role != "user":
        messages.insert(0, {"role": role, "content": f"about {typed}"})
    prompt = llm.parts.admission.chat(messages, params()).prompt
    marker = llm.parts.model.adapter.media_token_id
    (span,) = prompt.spans
    places = [i for i, token in enumerate(prompt.ids) if token == marker]
    assert places == list(range(span.start, span.end))
    tokenizer = llm.parts.model.tokenizer
    start, end = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    assert (prompt.ids[span.start - 1], prompt.ids[span.end]) == (start, end)
    by_hand = eager_by_hand(eager, messages, typed)
    assert by_hand.prompt.ids == prompt.ids
    for _ in eager.parts.engine.run([by_hand]):
        pass
    answer = llm.chat(messages, params())
    assert answer.token_ids == tuple(by_hand.output_ids)


def eager_by_hand(llm: LLM, messages: Sequence[Mapping[str, Any]], typed: str) -> Any:
    """A request whose ids are put together here: structure as special ids, contents as text."""
    tokenizer = llm.parts.model.tokenizer
    turn, close, begin, pad, finish = tokenizer.convert_tokens_to_ids(
        ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
    )

    def text(content: str) -> list[int]:
        ids: list[int] = tokenizer(content, split_special_tokens=True)["input_ids"]
        return ids

    ids: list[int] = []
    for message in messages:
        ids += [turn, *text(f"{message['role']}\n")]
        content = message["content"]
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            ids += [begin, pad, finish] if part["type"] == "image" else text(part["text"])
        ids += [close, *text("\n")]
    ids += [turn, *text("assistant\n")]
    admission = llm.parts.admission
    image = [p["image"] for p in messages[-1]["content"] if p["type"] == "image"]
    request = admission.text("<|image_pad|>", image, params())
    (span,) = request.prompt.spans
    at = ids.index(pad)
    ids[at : at + 1] = [pad] * len(span)
    prompt = type(request.prompt)(ids, (Span(0, at, at + len(span)),), request.prompt.artifacts)
    adapter = llm.parts.model.adapter
    request.prompt = prompt
    request.positions = adapter.positions(len(ids), prompt.spans, prompt.artifacts)
    return request


@pytest.mark.parametrize("family", FAMILIES)
def test_a_typed_placeholder_in_a_chat_without_pictures_is_text(family: str, pair: Pair) -> None:
    """H08: text only; every family's own placeholder, twice."""
    llm, _ = pair.get(family)
    placeholder = llm.parts.model.adapter.placeholder
    prompt = llm.parts.admission.chat(user(f"{placeholder}?", placeholder), params()).prompt
    assert prompt.spans == ()
    assert llm.parts.model.adapter.media_token_id not in prompt.ids
    assert ask(llm, f"{placeholder}?").usage.image_tokens == 0


# -- H09 ---------------------------------------------------------------------------------------


def check_rows(llm: LLM, seen: list[Any], images: Sequence[Image.Image]) -> None:
    """The rows fed over all chunks: encoder rows at their places, text elsewhere, in order."""
    fed = fed_to(seen, "input_embeds")
    request = fed[0][0]
    rows = torch.cat([part for _, part in fed])
    prompt, adapter = request.prompt, llm.parts.model.adapter
    assert len(rows) == len(prompt.ids)
    expected = torch.zeros_like(rows)
    text = adapter.text_rows(torch.tensor(prompt.ids))
    expected[:, : text.shape[1]] = text
    media: list[Tensor] = adapter.media_rows(prompt.artifacts)
    assert len(media) == len(images)
    for span in prompt.spans:
        expected[span.start : span.end] = media[span.item][span.row : span.row + len(span)]
    assert torch.equal(rows, expected)


def run_chunked(
    pair: tuple[LLM, LLM],
    text: str,
    images: Sequence[Image.Image],
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Completion, list[Any]]:
    """The prompt in steps of ``chunk`` tokens: equal to the whole one run eager; what was fed."""
    llm, eager = pair
    expected = eager.generate(text, params(4), images=images)
    with monkeypatch.context() as patch:
        set_chunk(llm, patch, chunk)
        seen = watch(patch, "input_embeds")
        answer = llm.generate(text, params(4), images=images)
    check_rows(llm, seen, images)
    assert_same(answer, expected)
    return answer, seen


EDGES = [0, 1, 31, 63, 64]


@pytest.mark.parametrize("chunk", [16, 17, 64, 1000])
@pytest.mark.parametrize("images", [1, 2])
def test_a_picture_crosses_the_edge_of_a_chunk_with_its_own_rows(
    chunk: int, images: int, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H09: 64 rows with an edge at row 0, 1, 31, 63, 64 of the only or of the second picture."""
    both = pair.get("qwen3_vl")
    shown = [picture(128, 128, seed=seed) for seed in range(1, images + 1)]
    pad = "<|image_pad|>"
    for edge in EDGES:
        before = 10
        # The last picture's rows start at `before`, plus what the first one takes before it.
        start = before + (0 if images == 1 else 64 + 3)
        before += -(start + edge) % chunk if chunk < 1000 else 0
        between = "" if images == 1 else pad + letters(3, seed=9)
        text = letters(before, seed=edge) + between + pad + "What is it?"
        answer, seen = run_chunked(both, text, shown, min(chunk, 512), monkeypatch)
        assert answer.usage.image_tokens == 64 * images
        ends = {c.end for fed in seen if fed.phase is Phase.PREFILL for c in fed.chunks}
        row_0 = before + (0 if images == 1 else 64 + 3)
        assert chunk == 1000 or row_0 + edge in ends


@pytest.mark.parametrize("family", FAMILIES)
def test_every_edge_position_gives_the_same_rows_and_answer(
    family: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H09: the first chunk ends before, at each place of, and after a small picture."""
    both = pair.get(family)
    llm = both[0]
    shown, other = ([picture(48, 32, seed=seed)] for seed in (3, 4))
    text = letters(5) + llm.parts.model.adapter.placeholder + letters(4, seed=1)
    assert_sensitive(
        llm.generate(text, params(1), images=shown), llm.generate(text, params(1), images=other)
    )
    spans = llm.parts.admission.text(text, shown, params()).prompt.spans
    for end in range(spans[0].start, spans[-1].end + 1):
        run_chunked(both, text, shown, end, monkeypatch)
    assert_idle(llm)


# -- H13 ---------------------------------------------------------------------------------------


def test_a_request_with_a_missing_feature_row_fails_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H13: one of four requests loses a row; the other three answer as alone, and all is free."""
    llm, eager = pair.get("qwen3_vl")
    asked = [user(picture(48, 32, seed=seed), "What is it?") for seed in range(4)]
    expected = [eager.chat(messages, params()) for messages in asked]
    adapter = llm.parts.model.adapter
    bad = llm.parts.admission.chat(asked[2], params()).prompt.artifacts[0]
    encode = adapter.encode

    def short(artifacts: Any) -> list[Tensor]:
        pairs = zip(artifacts, encode(artifacts), strict=True)
        return [rows[:-1] if made.digest == bad.digest else rows for made, rows in pairs]

    llm.flush_caches()
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "encode", short)
        answers = llm.chat(asked, params())
    assert llm.parts.encoder.usage().cache.entries == 3, "the broken rows were kept"
    broken = answers.pop(2)
    assert broken.finish_reason is FinishReason.ERROR
    assert broken.token_ids == ()
    assert broken.error is not None
    assert "rows" in broken.error
    assert "Traceback" not in broken.error
    for answer, reference in zip(answers, expected[:2] + expected[3:], strict=True):
        assert_same(answer, reference)
    assert_idle(llm)
    assert_same(llm.chat(asked[2], params()), expected[2])
    assert_same(ask(llm, "What is it?"), ask(eager, "What is it?"))


# -- H14 ---------------------------------------------------------------------------------------


def page(bar: int) -> bytes:
    """A white page of 600 x 800 as JPEG with one bar low down."""
    image = Image.new("RGB", (600, 800), "white")
    image.paste("black", (100, 700 + bar, 500, 720 + bar))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=90)
    return stream.getvalue()


def test_pages_of_one_renderer_are_different_pictures(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H14: long common heads, and even one digest for all, mix up no two pictures."""
    llm, eager = pair.get("qwen3_vl")
    prompts = [
        [{"role": "user", "content": [{"type": "image", "image": page(bar)}]}] for bar in (0, 60)
    ]
    digests = [llm.parts.admission.chat(p, params()).prompt.artifacts[0].digest for p in prompts]
    assert digests[0] != digests[1]
    expected = [eager.chat(p, params()) for p in prompts]
    monkeypatch.setattr("firstlight.media.identity.digest_of", lambda data: "sha256:" + "0" * 64)
    answers = [llm.chat(p, params()) for p in (*prompts, prompts[0])]
    for answer, reference in zip(answers, [*expected, expected[0]], strict=True):
        assert_same(answer, reference)
    assert_sensitive(answers[0], answers[1])


# -- H17 ---------------------------------------------------------------------------------------


def tool_call(shown: Image.Image) -> list[Mapping[str, Any]]:
    """A tool that answers with a picture, and a question about it."""
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "look()"},  # these templates have no place for calls
        {
            "role": "tool",
            "tool_call_id": "1",
            "content": [{"type": "text", "text": "here"}, {"type": "image", "image": shown}],
        },
        {"role": "user", "content": "What is in it?"},
    ]


def test_a_tools_picture_is_seen_where_the_template_has_a_place_for_it(pair: Pair) -> None:
    """H17: its span is in the prompt, and another picture gives another answer."""
    llm, eager = pair.get("qwen3_vl")
    one, other = (llm.chat(tool_call(picture(48, 32, seed=s)), params()) for s in (1, 2))
    assert one.usage.image_tokens == 6
    assert_sensitive(one, other)
    assert_same(one, eager.chat(tool_call(picture(48, 32, seed=1)), params()))


def test_a_tools_picture_is_refused_where_the_template_has_no_place_for_it(pair: Pair) -> None:
    """H17: never a prompt that silently lacks the picture."""
    llm, _ = pair.get("mistral3")
    with pytest.raises(MediaError, match=r"messages\[2\]\.content\[1\].*role 'tool'"):
        llm.chat(tool_call(picture(48, 32, seed=1)), params())
    assert_idle(llm)
