"""Public faults of KV memory, sliding windows and M-RoPE (cases H34 to H37), through the engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from firstlight import LLM
from firstlight.core.reason import Phase
from firstlight.engine.sequence import Sequence as Request
from tests.cases.steps import (
    Pair,
    ask,
    assert_idle,
    assert_same,
    assert_sensitive,
    eager_llm,
    fed_to,
    letters,
    params,
    set_chunk,
    watch,
)
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, assert_all_graph, first_logits, tiny_llm, user
from tests.oracle import model_inputs, oracle_generate, reference_model
from tests.pictures import picture
from tests.variants import with_window

MROPE = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: TinyCheckpoint) -> Pair:
    return Pair(tiny_checkpoint)


def rope_index(path: Path, ids: Sequence[int], images: Sequence[Image.Image]) -> Tensor:
    """transformers' own M-RoPE positions ``[3, n]`` of a prompt."""
    inputs = model_inputs(path, ids, images)
    types = inputs.get("mm_token_type_ids", torch.zeros(1, len(ids), dtype=torch.int32))
    positions, _ = reference_model(path).model.get_rope_index(
        inputs["input_ids"], types, image_grid_thw=inputs.get("image_grid_thw")
    )
    return torch.as_tensor(positions)[:, 0]


# -- H34 ---------------------------------------------------------------------------------------


def shaped(llm: LLM, kind: str) -> tuple[str, list[Image.Image]]:
    """A prompt of that kind whose length is a multiple of 3, and its pictures."""
    pad = llm.parts.model.adapter.placeholder
    tall, wide = picture(32, 64, seed=1), picture(80, 32, seed=2)
    words = {
        "text only": (letters(30), []),
        "image first": (pad + letters(20), [tall]),
        "image last": (letters(20) + pad, [wide]),
        "image text image": (pad + letters(9) + pad, [tall, wide]),
    }
    text, images = words[kind]
    n = len(llm.parts.admission.text(text, images, params()).prompt.ids)
    fill = letters(-n % 3, seed=4)
    return (fill + text if kind == "image last" else text.replace(pad, pad + fill, 1)
            if kind == "image text image" else text + fill), images  # fmt: skip


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("kind", ["text only", "image first", "image last", "image text image"])
def test_positions_of_all_chunks_together_are_those_of_the_whole_prompt(
    kind: str,
    family: str,
    pair: Pair,
    tiny_checkpoint: TinyCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H34: prompts one under, at, one over and three times the chunk; decode counts on."""
    llm, eager = pair.get(family)
    text, images = shaped(llm, kind)
    expected = eager.generate(text, params(), images=images)
    ids = llm.parts.admission.text(text, images, params()).prompt.ids
    reference = rope_index(tiny_checkpoint(family), ids, images)
    n = len(ids)
    assert n % 3 == 0
    for chunk in (n + 1, n, n - 1, n // 3):
        with monkeypatch.context() as patch:
            set_chunk(llm, patch, chunk)
            seen = watch(patch, "positions")
            answer = llm.generate(text, params(), images=images)
        fed = [rows for _, rows in fed_to(seen, "positions")]
        assert len(fed) == -(-n // chunk)
        assert torch.equal(torch.cat(fed, dim=1), reference)
        decoded = [rows for _, rows in fed_to(seen, "positions", Phase.DECODE)]
        first = int(reference.max()) + 1
        assert [d.flatten().tolist() for d in decoded] == [[first + i] * 3 for i in range(7)]
        assert_same(answer, expected)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("kind", ["text only", "image first", "image last", "image text image"])
def test_positions_behind_a_cached_prefix_go_on_where_the_prompt_does(
    kind: str,
    family: str,
    tiny_checkpoint: TinyCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H34: what is computed behind a hit has the positions of the whole prompt, decode as well."""
    path = tiny_checkpoint(family)
    llm = tiny_llm(path, prefix_cache=True, proof="off", max_batch_tokens=16, prefill_buckets=(16,))
    text, images = shaped(llm, kind)
    text += letters(20, seed=8)
    expected = eager_llm(path).generate(text, params(), images=images)
    reference = rope_index(
        path, llm.parts.admission.text(text, images, params()).prompt.ids, images
    )
    for _ in range(2):
        with monkeypatch.context() as patch:
            seen = watch(patch, "positions")
            answer = llm.generate(text, params(), images=images)
        fed = torch.cat([rows for _, rows in fed_to(seen, "positions")], dim=1)
        cached = answer.usage.cached_tokens
        assert torch.equal(fed, reference[:, cached:])
        assert_same(answer, expected)
    assert cached >= len(reference[0]) - 4
    first = int(reference.max()) + 1
    decoded = [rows for _, rows in fed_to(seen, "positions", Phase.DECODE)]
    assert [d.flatten().tolist() for d in decoded] == [[first + i] * 3 for i in range(7)]


# -- H35 ---------------------------------------------------------------------------------------


def play(llm: LLM, arrivals: Sequence[tuple[int, Request]], after: Callable[[], None]) -> None:
    """Run requests that arrive before the given steps."""
    engine = llm.parts.engine
    waiting = sorted(arrivals, key=lambda a: a[0])
    for step in itertools.count():
        while waiting and waiting[0][0] <= step:
            engine.add(waiting.pop(0)[1])
        if not engine.step() and not waiting:
            return
        after()


def state_of(model: Any) -> dict[str, dict[str, int]]:
    """What every module holds beside its parameters: names and identities."""
    return {
        name: {k: id(v) for k, v in vars(module).items() if not k.startswith("_")}
        for name, module in model.named_modules()
    }


GAPS = [(0, 0), (1, 1), (0, 3)]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("chunk", [512, 24])
def test_every_interleaving_of_three_requests_keeps_each_ones_offset(
    chunk: int, family: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H35: a picture of 16 x 16 patches, one of 4 x 8, and a text; nothing stays on a module."""
    llm, eager = pair.get(family)
    prompts: list[list[Part]] = [
        [picture(128, 128, seed=1), "What is it?"],
        [picture(64, 32, seed=2), "What is it?"],
        ["What is it?"],
    ]
    expected = [ask(eager, *parts) for parts in prompts]
    assert_sensitive(expected[0], ask(eager, picture(128, 128, seed=3), "What is it?"))
    model = llm.parts.model.adapter.model
    ask(llm, "Hello", tokens=2)
    before = state_of(model)

    def nothing_left() -> None:
        assert state_of(model) == before
        assert model.model.rope_deltas is None

    set_chunk(llm, monkeypatch, chunk)
    for order in itertools.permutations(range(3)):
        for first, second in GAPS:
            times = (0, first, first + second)
            requests = [llm.parts.admission.chat(user(*parts), params()) for parts in prompts]
            arrivals = [(time, requests[i]) for time, i in zip(times, order, strict=True)]
            play(llm, arrivals, nothing_left)
            for request, answer in zip(requests, expected, strict=True):
                assert tuple(request.output_ids) == answer.token_ids
                assert answer.logprobs is not None
                for ours, theirs in zip(request.logprobs, answer.logprobs, strict=True):
                    assert abs(ours.logprob - theirs.logprob) <= 1e-4
    assert_idle(llm)


# -- H36 ---------------------------------------------------------------------------------------


WINDOW = 8
CHUNKS = (1, 3, 7, 8, 9, 16)


@pytest.fixture(scope="module")
def windowed(
    tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A family's checkpoint with a window of 8, layers alternating where the family can."""
    root = tmp_path_factory.mktemp("windowed")

    def get(family: str) -> Path:
        folder = root / family
        checkpoint = tiny_checkpoint(family)
        return folder if folder.exists() else with_window(checkpoint, folder, WINDOW)

    return get


def listen(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The logits ``[V]`` of every step that samples, one request at a time."""
    heard: list[Tensor] = []
    adapter = llm.parts.model.adapter
    plain = type(adapter).logits

    def logits(hidden: Tensor) -> Tensor:
        heard.append(plain(adapter, hidden))
        return heard[-1]

    monkeypatch.setattr(adapter, "logits", logits)
    return heard


@torch.no_grad()
def no_cache_logits(path: Path, ids: Sequence[int], images: Sequence[Image.Image]) -> Tensor:
    """transformers' logits ``[n, V]`` of one forward over everything, without any cache."""
    out = reference_model(path)(**model_inputs(path, ids, images), use_cache=False)
    logits: Tensor = out.logits[0].float()
    return logits


def assert_steps_equal_a_forward_without_cache(
    llm: LLM, path: Path, text: str, images: list[Image.Image], patch: pytest.MonkeyPatch
) -> int:
    heard = listen(llm, patch)
    prompt = llm.parts.admission.text(text, images, params()).prompt.ids
    answer = llm.generate(text, params(12), images=images)
    assert_all_graph(answer)
    whole = no_cache_logits(path, [*prompt, *answer.token_ids[:-1]], images)
    expected = whole[len(prompt) - 1 :]
    assert (torch.cat(heard) - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1)
    return len(prompt)


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_every_step_around_the_window_equals_a_forward_without_cache(
    family: str, windowed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36: prompts of 5 to 26 tokens in chunks around the window, then 12 steps."""
    path = windowed(family)
    llm = tiny_llm(path)
    windows = {facts.window for facts in llm.parts.model.layers}
    assert windows == ({WINDOW} if family == "mistral" else {WINDOW, None})
    lengths = set()
    for n, chunk in zip(range(5, 27), itertools.cycle(CHUNKS), strict=False):
        with monkeypatch.context() as patch:
            set_chunk(llm, patch, chunk)
            text = letters(n, seed=n)
            lengths.add(assert_steps_equal_a_forward_without_cache(llm, path, text, [], patch))
    assert lengths == set(range(5, 27))


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_steps_behind_a_cached_prefix_equal_a_forward_without_cache(
    family: str, windowed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36: hits that end around the window, where the sliding layers keep only the last pages."""
    path = windowed(family)
    llm = tiny_llm(path, prefix_cache=True, page_size=2)
    whole = letters(40)
    for n in (40, 5, 7, 8, 9, 16, 17, 26, 40):
        with monkeypatch.context() as patch:
            text = whole[:n] + letters(n % 4, seed=n)
            assert_steps_equal_a_forward_without_cache(llm, path, text, [], patch)
    assert llm.parts.kv.usage().hits >= 7
    assert_idle(llm)


@pytest.mark.parametrize("chunk", [512, *CHUNKS])
def test_a_picture_across_the_edge_of_the_window_is_seen_as_far_as_it_reaches(
    chunk: int, windowed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36: the window's edge lies inside the picture's rows while text and answer go on."""
    path = windowed("mistral3")
    llm = tiny_llm(path)
    assert {facts.window for facts in llm.parts.model.layers} == {WINDOW}
    shown = [picture(64, 48, seed=1)]
    for before, after in ((0, 2), (3, 5), (9, 1)):
        with monkeypatch.context() as patch:
            set_chunk(llm, patch, chunk)
            text = letters(before) + "[IMG]" + letters(after, seed=1)
            assert_steps_equal_a_forward_without_cache(llm, path, text, shown, patch)


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
@pytest.mark.parametrize("page", [1, 4, 16])
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
def test_a_windowed_layer_keeps_the_pages_of_its_window_and_a_full_one_keeps_all(
    cache: bool, page: int, family: str, windowed: Callable[[str], Path]
) -> None:
    """H36: each side by its own rule, at every step of a long answer."""
    llm = tiny_llm(windowed(family), eager=True, page_size=page, prefix_cache=cache)
    request = llm.parts.admission.text(letters(21), [], params(60))
    llm.parts.engine.add(request)
    most = -(-WINDOW // page) + 1
    steps = 0
    while llm.parts.engine.step():
        usage = llm.parts.kv.usage()
        if request.finish is None:
            steps += 1
            (side,) = usage.sides
            assert 0 < side.held <= most
            assert usage.pages.held >= -(-request.computed // page)
    assert steps == 59
    assert_idle(llm)


# -- H37 ---------------------------------------------------------------------------------------


SIZES = [(48, 32), (32, 96), (80, 48), (64, 64)]
GRID_PROMPTS: dict[str, list[Part]] = {
    "none": ["What is it?"],
    "one": ["a", picture(*SIZES[0], seed=1), "b"],
    "two adjacent, first": [picture(*SIZES[0], seed=1), picture(*SIZES[1], seed=2), "compare"],
    "three apart, last": [
        "a", picture(*SIZES[1], seed=1), "b", picture(*SIZES[2], seed=2), "c",
        picture(*SIZES[3], seed=3),
    ],
    "four": [picture(*size, seed=i) for i, size in enumerate(SIZES)],
}  # fmt: skip


@pytest.mark.parametrize("family", MROPE)
@pytest.mark.parametrize("name", GRID_PROMPTS)
def test_positions_and_rotary_factors_equal_transformers_for_grids_anywhere(
    name: str,
    family: str,
    pair: Pair,
    tiny_checkpoint: TinyCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H37: up to four pictures of differing grids, adjacent and apart, first and last."""
    llm, _ = pair.get(family)
    path, parts = tiny_checkpoint(family), GRID_PROMPTS[name]
    images = [part for part in parts if isinstance(part, Image.Image)]
    with monkeypatch.context() as patch:
        seen = watch(patch, "positions")
        logits = first_logits(llm, parts)
    (request, fed) = fed_to(seen, "positions")[0]
    expected = rope_index(path, request.prompt.ids, images)
    assert torch.equal(fed, expected)
    for span in request.prompt.spans:
        t, h, w = expected[:, span.start : span.end]
        assert ((t != h) & (h != w) & (w != t)).any(), "text alone would have these positions"
    ours = llm.parts.model.adapter.decoder.rotary_emb
    theirs = reference_model(path).model.language_model.rotary_emb
    x = torch.zeros(1, 1, 1)
    for a, b in zip(ours(x, fed[:, None]), theirs(x, expected[:, None]), strict=True):
        assert torch.equal(a, b)
    reference = oracle_generate(path, request.prompt.ids, images, 1)
    assert (logits - reference.logits).abs().max() < 1e-4
