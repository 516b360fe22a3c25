"""Each family, through its adapter, equals transformers' own forward on the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from PIL import Image
from tools.tiny_checkpoints import (
    FAMILIES,
    MORE_TEXT_FAMILIES,
    PREFIX_LM_FAMILIES,
    TEXT_FAMILIES,
    VISION_FAMILIES,
)
from torch.utils._python_dispatch import TorchDispatchMode

from firstlight.models.loading import load_model
from firstlight.models.probe import neutral_rows
from tests.conftest import TinyCheckpoint
from tests.models.dense import (
    DenseContext,
    Inputs,
    artifact_of,
    compose,
    decode,
    generate,
    load,
    merged_rows,
)
from tests.oracle import oracle_generate
from tests.pictures import picture

SMALL, LARGE = picture(48, 32, seed=1), picture(40, 72, seed=2)
PROMPTS: dict[str, list[str | Image.Image]] = {
    "text": ["What is this?"],
    "image first": [SMALL, "What is it?"],
    "image last": ["What is it?", LARGE],
    "two images": ["a ", SMALL, "b ", LARGE, " compare"],
    "adjacent images": [SMALL, LARGE, "Compare."],
}
STEPS = 12
IMAGE_FAMILIES = (*VISION_FAMILIES, *PREFIX_LM_FAMILIES)


def check(path: TinyCheckpoint, family: str, parts: list[str | Image.Image]) -> None:
    folder = path(family)
    loaded = load(folder)
    prompt = compose(loaded, parts)
    images = [p for p in parts if not isinstance(p, str)]
    logits, ids = generate(loaded, prompt, STEPS)
    expected = oracle_generate(folder, prompt.ids, images, STEPS)
    assert (logits - expected.logits).abs().max() < 1e-4
    compared = expected.decided()
    assert compared >= STEPS, "choose a seed whose greedy steps are all clear"
    assert tuple(ids[:compared]) == expected.greedy_ids[:compared]


@pytest.mark.parametrize("family", [*TEXT_FAMILIES, *MORE_TEXT_FAMILIES])
def test_a_text_decoder_answers_like_transformers(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    check(tiny_checkpoint, family, ["How many circles are there in the picture?"])


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_a_vision_model_answers_like_transformers(
    family: str, prompt: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    check(tiny_checkpoint, family, PROMPTS[prompt])


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_another_image_changes_the_logits(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load(tiny_checkpoint(family))
    one, other = (
        generate(loaded, compose(loaded, [picture(48, 32, seed=s), "What is it?"]), 1)[0]
        for s in (1, 7)
    )
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_rows_of_an_image_do_not_depend_on_its_neighbours(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint(family))
    parts = [SMALL, LARGE, picture(96, 32, seed=3), SMALL]
    artifacts = compose(loaded, [*parts, "x"]).artifacts
    with torch.no_grad():
        together = loaded.adapter.media_rows(artifacts)
        alone = [loaded.adapter.media_rows([a])[0] for a in artifacts]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stack", ["deepstack.0", "deepstack.1"])
def test_zeroing_one_deepstack_segment_changes_the_hidden_states(
    stack: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint("qwen3_vl"))
    adapter, prompt = loaded.adapter, compose(loaded, [SMALL, "What is it?"])
    where = torch.from_numpy(
        adapter.positions(len(prompt.ids), prompt.spans, prompt.artifacts).prompt
    )
    segment = adapter.contract.segment(stack)
    with torch.no_grad():
        rows = merged_rows(adapter, prompt)
        body = adapter.body()
        before = body(Inputs(rows, where, {}, DenseContext()))
        rows[:, segment.start : segment.end] = 0
        after = body(Inputs(rows, where, {}, DenseContext()))
    assert (before[-1] - after[-1]).abs().max() > 1e-3


def test_no_request_leaves_anything_on_the_modules(tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load(tiny_checkpoint("qwen3_vl"))
    model = loaded.adapter.model
    before = {n: set(vars(m)) for n, m in model.named_modules()}
    generate(loaded, compose(loaded, [SMALL, "What is it?"]), 3)
    assert {n: set(vars(m)) for n, m in model.named_modules()} == before
    assert model.model.rope_deltas is None


def test_a_request_that_starts_while_another_decodes_changes_nothing_for_it(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    loaded = load(tiny_checkpoint("qwen2_vl"))
    one, other = (
        compose(loaded, [picture(width, 96, seed=width), "What is it?"]) for width in (96, 16)
    )
    expected = [list(decode(loaded, p, 6)) for p in (one, other)]
    first = decode(loaded, one, 6)
    mixed = [next(first), next(first)]
    second = decode(loaded, other, 6)
    mixed_other = [next(second)]
    for a, b in zip(first, second, strict=False):
        mixed.append(a)
        mixed_other.append(b)
    assert mixed == expected[0]
    assert [*mixed_other, *second] == expected[1]


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names the operations that need a value, or a size that depends on one, on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(func)
        asks = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero")
        by_mask = "aten.index" in name and any(
            isinstance(i, torch.Tensor) and i.dtype == torch.bool
            for i in (args[1] if isinstance(args[1], list | tuple) else ())
        )
        if by_mask or any(word in name for word in asks):
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_body_reads_nothing_on_the_host(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    adapter = load(tiny_checkpoint(family)).adapter
    body, rows = adapter.body(), neutral_rows(adapter, 4, DenseContext())
    with torch.no_grad(), HostReads() as watch:
        body(rows)
    assert watch.seen == set()


def test_the_watch_notices_transformers_own_deepstack(tiny_checkpoint: TinyCheckpoint) -> None:
    adapter = load(tiny_checkpoint("qwen3_vl")).adapter
    hidden, where = torch.zeros(1, 4, 64), torch.tensor([[False, True, True, False]])
    with torch.no_grad(), HostReads() as watch:
        adapter.decoder._deepstack_process(hidden, where, torch.ones(2, 64))
    assert watch.seen


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_media_rows_have_the_weights_dtype(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load_model(tiny_checkpoint(family), dtype="bfloat16")
    (rows,) = loaded.adapter.media_rows([artifact_of(loaded, SMALL)])
    assert rows.dtype == torch.bfloat16
    assert rows.isfinite().all()


@pytest.mark.parametrize("size", [(1, 1), (16, 16)], ids=str)
def test_a_picture_of_one_row_is_encoded_like_any_other(
    size: tuple[int, int], tiny_checkpoint: TinyCheckpoint
) -> None:
    loaded = load(tiny_checkpoint("mistral3"))
    model = loaded.adapter.model.model
    artifact = artifact_of(loaded, picture(*size))
    pixels, sizes = (artifact.tensors[name] for name in ("pixel_values", "image_sizes"))
    with torch.no_grad():
        (rows,) = loaded.adapter.media_rows([artifact])
        tower = model.vision_tower(pixels, image_sizes=sizes, output_hidden_states=True)
        layer = tower.hidden_states[model.config.vision_feature_layer]
        expected = model.multi_modal_projector(layer.squeeze(0), sizes)
    assert rows.shape[0] == 1
    torch.testing.assert_close(rows, expected)
