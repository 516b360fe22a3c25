"""From a file to the model's inputs as transformers' own processors make them of the plain picture.

Pixel tensors, grids, prompt ids and positions of 200 pictures of 12 modes and odd sizes; by default
a sample of them, all with ``scripts/test --slow tests/media/test_processor_parity.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, VISION_FAMILIES

from firstlight.core.span import Span
from firstlight.engine.messages import collect_media
from firstlight.engine.prompt import Prompt, PromptBuilder
from firstlight.errors import MediaError
from firstlight.media import ImageLimits, decode_image
from firstlight.media.side_ratio import side_ratio_limit
from firstlight.models.loading import LoadedModel, load_model
from tests.conftest import TinyCheckpoint
from tests.media.processors import MODES, Sample, sample, transformers_processor
from tests.oracle import reference_model

FAMILIES = [
    *VISION_FAMILIES,
    *(family for family in PREFIX_LM_FAMILIES if family.endswith("_vl")),
]
MROPE = [family for family in VISION_FAMILIES if family.startswith("qwen")]
ALL = range(200)
SOME = range(0, 24, 2), range(1, 25, 2)
TEXT = "What is it? "


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    return load_model(tiny_checkpoint(request.param), dtype="float32")


def parts_of(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Text before, between and behind the pictures."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": TEXT}]
    for one in samples:
        parts += [{"type": "image", "image": one.data}, {"type": "text", "text": TEXT}]
    return parts


def ours(loaded: LoadedModel, samples: Sequence[Sample]) -> Prompt:
    """The prompt as firstlight composes it of the files."""
    processor = loaded.image_processor
    assert processor is not None
    artifacts = [processor.artifact(decode_image(one.data)) for one in samples]
    builder = PromptBuilder(loaded.tokenizer, loaded.chat_template, loaded.adapter)
    messages, _ = collect_media([{"role": "user", "content": parts_of(samples)}])
    return builder.chat(messages, artifacts)


def theirs(loaded: LoadedModel, samples: Sequence[Sample]) -> Any:
    """What transformers' processor makes of the plain pictures."""
    processor = transformers_processor(loaded.path)
    text = processor.tokenizer.apply_chat_template(
        [{"role": "user", "content": parts_of(samples)}], tokenize=False, add_generation_prompt=True
    )
    return processor(
        images=[one.plain for one in samples],
        text=text,
        add_special_tokens=False,
        return_tensors="pt",
    )


NO_PIXELS = {"input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids"}


def assert_equal_inputs(loaded: LoadedModel, one: Sample) -> bool:
    """All that transformers gives its model for a picture is in the prompt or in its artifact.

    Returns False for a picture that neither of them accepts.
    """
    try:
        expected = theirs(loaded, [one])
    except Exception:  # processors refuse sizes in any way
        width, height = one.plain.size
        with pytest.raises(MediaError, match=f"{width} x {height}"):
            ours(loaded, [one])
        return False
    prompt = ours(loaded, [one])
    assert prompt.ids == expected["input_ids"][0].tolist(), one.name
    (artifact,) = prompt.artifacts
    assert artifact.size == one.plain.size, one.name
    names = set(expected) - NO_PIXELS
    assert names <= set(artifact.tensors), one.name
    for name in names:
        assert torch.equal(artifact.tensors[name], expected[name]), f"{one.name}: {name}"
    assert_equal_positions(loaded, prompt, expected, one.name)
    return True


def assert_equal_positions(loaded: LoadedModel, prompt: Prompt, expected: Any, what: str) -> None:
    """Positions of the prompt and of the first generated token."""
    n = len(prompt.ids)
    positions = loaded.adapter.positions(n, prompt.spans, prompt.artifacts)
    if loaded.adapter.position_rank == 1:
        assert positions.prompt.tolist() == [list(range(n))], what
        assert positions.next == n
        return
    rows, delta = reference_model(loaded.path).model.get_rope_index(
        expected["input_ids"],
        (expected["input_ids"] == loaded.adapter.media_token_id).int(),
        image_grid_thw=expected["image_grid_thw"],
    )
    assert np.array_equal(positions.prompt, rows[:, 0].numpy()), what
    assert positions.next == n + int(delta), what


@pytest.mark.parametrize("numbers", SOME, ids=["even", "odd"])
def test_a_file_gives_what_transformers_makes_of_the_plain_picture(
    loaded: LoadedModel, numbers: range
) -> None:
    assert sum(assert_equal_inputs(loaded, sample(number)) for number in numbers) >= 10


@pytest.mark.slow
def test_all_files_give_what_transformers_makes_of_the_plain_picture(loaded: LoadedModel) -> None:
    # A tiny Pixtral refuses lines, which its 64 pixels would leave no height.
    assert sum(assert_equal_inputs(loaded, sample(number)) for number in ALL) >= 160


@pytest.mark.parametrize("family", MROPE)
def test_positions_of_up_to_five_pictures_equal_transformers(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    model = load_model(tiny_checkpoint(family), dtype="float32")
    text = ours(model, [])
    positions = model.adapter.positions(len(text.ids), (), ())
    assert positions.prompt.tolist() == [list(range(len(text.ids)))] * 3
    for count in range(1, 6):
        for first in (0, 7):
            samples = [sample(first + 5 * i) for i in range(count)]
            prompt, expected = ours(model, samples), theirs(model, samples)
            assert prompt.ids == expected["input_ids"][0].tolist()
            assert len({span.item for span in prompt.spans}) == count
            assert_equal_positions(model, prompt, expected, f"{count} from {first}")


def test_the_pictures_are_of_all_modes_and_sizes_down_to_a_pixel_and_up_to_the_limit() -> None:
    made = [sample(number) for number in ALL]
    assert len({one.data for one in made}) == len(made)
    assert {one.name.split(": ")[1].rsplit(" ", 3)[0] for one in made} == set(MODES)
    sizes = [one.plain.size for one in made]
    assert (1, 1) in sizes
    limit = ImageLimits().max_side_ratio
    assert max(max(size) / min(size) for size in sizes) == limit


def test_the_comparison_sees_a_wrong_pixel_a_wrong_id_and_a_wrong_position(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(tiny_checkpoint("qwen3_vl"), dtype="float32")
    one = sample(6)
    wrong = Sample(one.name, one.data, one.plain.copy())
    wrong.plain.putpixel((0, 0), (1, 2, 3))
    with pytest.raises(AssertionError, match="pixel_values"):
        assert_equal_inputs(model, wrong)
    expand = type(model.adapter).expand
    with monkeypatch.context() as patch:
        patch.setattr(type(model.adapter), "expand", lambda *a: [*expand(*a), 5])
        with pytest.raises(AssertionError, match="6: RGBA"):
            assert_equal_inputs(model, one)
    place = type(model.adapter).positions

    def shifted(self: Any, n: int, spans: Sequence[Span], artifacts: Any) -> Any:
        found = place(self, n, spans, artifacts)
        found.prompt[2, -1] += 1
        return found

    monkeypatch.setattr(type(model.adapter), "positions", shifted)
    with pytest.raises(AssertionError, match="6: RGBA"):
        assert_equal_inputs(model, one)


@pytest.mark.parametrize("family", MROPE)
def test_the_ratio_limit_of_the_processor_is_known_and_named_before_decoding(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    images = transformers_processor(tiny_checkpoint(family)).image_processor
    limits = ImageLimits(max_side_ratio=None).within(side_ratio_limit(images))
    with pytest.raises(MediaError, match=r"201 x 1, a side ratio of 201.0; at most 200"):
        limits.check(201, 1)
    limits.check(200, 1)
