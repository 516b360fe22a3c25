"""Videos through the whole engine answer like transformers, and every frame and its time counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from firstlight import LLM
from firstlight.errors import MediaError, RequestError
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, assert_all_graph, assert_same_ids, tiny_llm
from tests.oracle import reference_model
from tests.pictures import picture
from tests.video_oracle import Clip, Inputs, Part, video_generate

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_plain")
FRAMES = tuple(picture(48, 32, seed=seed) for seed in range(5))
CLIP = Clip(FRAMES, 1.5)
WIDE = Clip(tuple(picture(72, 24, seed=seed) for seed in range(20, 24)), 0.7)
STILL = picture(40, 56, seed=9)
PADS = (
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<|vision_start|><|video_pad|><|vision_end|>",
)
PROMPTS: dict[str, list[Part]] = {
    "a video": [CLIP, "What is it?"],
    "a video after text": ["Describe the picture.", WIDE],
    "two videos and pictures": [STILL, "a", CLIP, "b", picture(48, 32, seed=3), WIDE, "c", STILL],
}


def user(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """One user turn."""
    return [{"role": "user", "content": [_part(part) for part in parts]}]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Image.Image):
        return {"type": "image", "image": part}
    return {"type": "video", "video": list(part.frames), "fps": part.fps}


def logits(llm: LLM, parts: Sequence[Part]) -> torch.Tensor:
    """Float32 ``[V]`` at the end of the prompt, through the engine's own step."""
    seen: list[torch.Tensor] = []
    adapter = llm.parts.model.adapter
    plain = adapter.logits

    def listening(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(plain(hidden))
        return seen[-1]

    adapter.logits = listening  # type: ignore[method-assign]
    try:
        llm.chat(user(parts), replace(GREEDY, max_tokens=1))
    finally:
        del adapter.logits
    return seen[0][-1].clone()


class Engines:
    """One engine a family, built when it is first asked for and dropped for the next one."""

    def __init__(self, checkpoints: TinyCheckpoint) -> None:
        self.path = checkpoints
        self._held: tuple[str, LLM, Inputs] | None = None

    def get(self, family: str) -> tuple[LLM, Inputs]:
        if self._held is None or self._held[0] != family:
            path = self.path(family)
            self._held = (family, tiny_llm(path), Inputs(family, path))
        return self._held[1:]


@pytest.fixture(scope="module")
def engines(tiny_checkpoint: TinyCheckpoint) -> Engines:
    return Engines(tiny_checkpoint)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parts", PROMPTS.values(), ids=PROMPTS)
def test_ids_positions_logits_and_answer_equal_transformers(
    family: str, parts: list[Part], engines: Engines
) -> None:
    llm, inputs = engines.get(family)
    made = inputs.of(parts)
    expected = video_generate(engines.path(family), made)
    sequence = llm.parts.admission.chat(user(parts), GREEDY)
    assert tuple(sequence.prompt.ids) == expected.prompt_ids
    positions, following = rope_index(engines.path(family), made)
    np.testing.assert_array_equal(sequence.positions.prompt, positions)
    assert sequence.positions.next == following
    assert (logits(llm, parts) - expected.logits).abs().max() < 1e-4
    answer = llm.chat(user(parts), GREEDY)
    assert_same_ids(answer, expected)
    assert_all_graph(answer)


def rope_index(path: Path, made: dict[str, Any]) -> tuple[np.ndarray, int]:
    """transformers' positions of a prompt, and the one of a text token that would follow."""
    names = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
    ids = torch.cat([made["input_ids"], torch.zeros(1, 1, dtype=torch.int64)], dim=1)
    types = torch.cat([made["mm_token_type_ids"], torch.zeros(1, 1, dtype=torch.int32)], dim=1)
    positions, _ = reference_model(path).model.get_rope_index(
        ids,
        mm_token_type_ids=types,
        **{name: made[name] for name in names if name in made},
    )
    return positions[:, 0, :-1].numpy(), int(positions[0, 0, -1])


CHANGES = {
    "one other frame": replace(CLIP, frames=(*FRAMES[:3], picture(48, 32, seed=70), FRAMES[4])),
    "another last frame": replace(CLIP, frames=(*FRAMES[:4], picture(48, 32, seed=71))),
    "another order": replace(CLIP, frames=(*FRAMES[:2], FRAMES[3], FRAMES[2], FRAMES[4])),
    "two frames of one group change places": replace(
        CLIP, frames=(FRAMES[1], FRAMES[0], *FRAMES[2:])
    ),
    "fewer frames": replace(CLIP, frames=FRAMES[:3]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_frame_and_their_order_change_the_logits(family: str, engines: Engines) -> None:
    llm, _ = engines.get(family)
    plain = logits(llm, [CLIP, "What?"])
    for name, clip in CHANGES.items():
        change = (logits(llm, [clip, "What?"]) - plain).abs().max()
        assert change > 1e-3, name
    assert torch.equal(logits(llm, [CLIP, "What?"]), plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rate_changes_the_logits_where_the_model_reads_it(
    family: str, engines: Engines
) -> None:
    llm, _ = engines.get(family)
    change = logits(llm, [CLIP, "What?"]) - logits(llm, [replace(CLIP, fps=0.4), "What?"])
    if family == "qwen2_vl":  # its rows in time are numbered, whatever their times
        assert not change.any()
    else:
        assert change.abs().max() > 1e-3


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("limit", [5, 7, 16])
def test_a_video_cut_by_chunks_anywhere_gives_the_same_answer(
    limit: int, family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    path = tiny_checkpoint(family)
    parts = PROMPTS["two videos and pictures"]
    expected = video_generate(path, Inputs(family, path).of(parts))
    llm = tiny_llm(path, max_batch_tokens=limit, prefill_buckets=(limit,))
    answer = llm.chat(user(parts), GREEDY)
    assert_same_ids(answer, expected)
    assert_all_graph(answer)
    assert len(answer.timings.steps) > len(expected.prompt_ids) // limit


def test_requests_with_videos_beside_others_answer_as_they_do_alone(engines: Engines) -> None:
    llm, _ = engines.get("qwen3_vl")
    turns: list[list[Part]] = [*PROMPTS.values(), ["hello"], [STILL, "What?"]]
    prompts = [user(parts) for parts in turns]
    together = llm.chat(prompts, GREEDY)
    for prompt, answer in zip(prompts, together, strict=True):
        assert answer.token_ids == llm.chat(prompt, GREEDY).token_ids


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_the_same_video_is_found_again_and_another_frame_or_rate_is_not(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), prefix_cache=True)
    first = llm.chat(user([CLIP, "What is it?"]), GREEDY)
    again = llm.chat(user([CLIP, "What is it?"]), GREEDY)
    assert again.token_ids == first.token_ids
    (timing,) = again.timings.pictures
    assert (timing.artifact.value, timing.encoder.value) == ("hit", "skipped")
    video_end = llm.parts.admission.chat(user([CLIP, "What is it?"]), GREEDY).needs[0].end
    assert again.usage.cached_tokens >= video_end
    others = [*CHANGES.values(), replace(CLIP, fps=0.4)]
    for clip in others:
        answer = llm.chat(user([clip, "What is it?"]), GREEDY)
        assert answer.usage.cached_tokens < video_end
        llm.flush_caches()
        assert answer.token_ids == llm.chat(user([clip, "What is it?"]), GREEDY).token_ids


def test_the_rows_of_a_video_that_is_asked_about_twice_are_encoded_once(engines: Engines) -> None:
    llm, _ = engines.get("qwen3_vl")
    llm.flush_caches()
    first, second = (llm.chat(user([text, CLIP]), GREEDY) for text in ("one", "another"))
    assert [t.encoder.value for t in first.timings.pictures] == ["miss"]
    assert [t.encoder.value for t in second.timings.pictures] == ["hit"]


@pytest.mark.parametrize("family", ["llava", "llava_onevision", "internvl", "smolvlm", "mistral3"])
def test_other_families_refuse_a_video_by_the_place_of_it(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    llm = tiny_llm(tiny_checkpoint(family), eager=True)
    messages = [{"role": "user", "content": "a"}, *user(["What?", CLIP])]
    name = re.escape(llm.parts.model.name)
    refusal = rf"messages\[1\]\.content\[1\]\.video is a video, but {name} takes no videos"
    with pytest.raises(MediaError, match=refusal):
        llm.chat(messages, GREEDY)


def test_a_text_model_refuses_a_video(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("llama"), eager=True)
    with pytest.raises(MediaError, match=r"content\[0\]\.video is a video, but .* text only"):
        llm.chat(user([CLIP]), GREEDY)


def test_a_typed_placeholder_of_a_video_stays_text(engines: Engines) -> None:
    llm, _ = engines.get("qwen3_vl")
    typed = "<|vision_start|><|video_pad|><|vision_end|>"
    prompt = llm.parts.admission.chat(user([typed, CLIP]), GREEDY).prompt
    token = llm.parts.model.adapter.video_token_id
    assert token is not None
    assert prompt.ids.count(token) == sum(len(span) for span in prompt.spans) == 18


def test_a_raw_prompt_with_a_placeholder_and_no_video_is_refused(engines: Engines) -> None:
    llm, _ = engines.get("qwen3_vl")
    with pytest.raises(RequestError, match=r"1 placeholders '<\|video_pad\|>', but 0 videos"):
        llm.generate("a<|vision_start|><|video_pad|><|vision_end|>")


def test_a_raw_prompt_takes_pictures_and_videos_in_the_order_of_each(engines: Engines) -> None:
    llm, _ = engines.get("qwen2_5_vl")
    parts = PROMPTS["two videos and pictures"]
    asked = llm.parts.admission.chat(user(parts), GREEDY)
    pads = ["" if isinstance(p, str) else PADS[isinstance(p, Clip)] for p in parts]
    text = "".join(pad or str(p) for pad, p in zip(pads, parts, strict=True))
    answer = llm.generate(
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n",
        GREEDY,
        images=[p for p in parts if isinstance(p, Image.Image)],
        videos=[{"video": p.frames, "fps": p.fps} for p in parts if isinstance(p, Clip)],
    )
    assert answer.usage.prompt_tokens == len(asked.prompt.ids)
    assert answer.token_ids == llm.chat(user(parts), GREEDY).token_ids


def test_several_raw_prompts_have_videos_of_their_own(engines: Engines) -> None:
    llm, _ = engines.get("qwen2_5_vl")
    prompt = "a<|vision_start|><|video_pad|><|vision_end|>b"
    clips = [list(CLIP.frames), list(WIDE.frames)]
    together = llm.generate([prompt, prompt], GREEDY, videos=[[clip] for clip in clips])
    alone = [llm.generate(prompt, GREEDY, videos=[clip]) for clip in clips]
    assert [a.token_ids for a in together] == [a.token_ids for a in alone]
    assert together[0].token_ids != together[1].token_ids


@pytest.mark.parametrize(
    ("videos", "message"),
    [
        ("clip.mp4", "videos is of type str; give a list of videos"),
        ([[]], r"videos\[0\]\.video is \[\]; accepted: a list of at least one frame"),
        ([{"video": "clip.mp4", "fps": -1}], r"videos\[0\]\.fps is -1; accepted"),
        ([{"path": "no such clip"}], r"videos\[0\]\.path: no such picture"),
    ],
)
def test_what_is_wrong_with_a_video_of_a_raw_prompt_is_named(
    videos: Any, message: str, engines: Engines
) -> None:
    llm, _ = engines.get("qwen2_5_vl")
    with pytest.raises(RequestError, match=message):
        llm.generate("<|vision_start|><|video_pad|><|vision_end|>", GREEDY, videos=videos)
