"""Frames are sampled and sized as transformers' video processors do it.

``recorded_video_rules.json`` holds what those of transformers 5.24 said with torchvision 0.28, that
they need: per family ``samples`` (frames, their rate, the rate or number asked for, how many were
taken, the sum of their numbers, each times its place from 1) and ``sizes`` (frames, height, width,
capped or not, the new height and width).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.models.adapters.video_rules import (
    Qwen2VideoRules,
    Qwen3VideoRules,
    QwenVideoRules,
)
from firstlight.models.videos import video_settings

RECORDED = json.loads((Path(__file__).parent / "recorded_video_rules.json").read_text())
RULES: dict[str, type[Any]] = {"qwen2": Qwen2VideoRules, "qwen3": Qwen3VideoRules}


@pytest.mark.parametrize("family", RULES)
def test_the_same_frames_are_taken_as_by_transformers(family: str) -> None:
    rules = RULES[family].of({})
    for total, source_fps, fps, num_frames, count, checksum in RECORDED[family]["samples"]:
        taken = rules.sample(total, source_fps, fps, num_frames)
        if family == "qwen2" and (total, num_frames) == (300, 28):
            taken.append(300)  # transformers asks for this frame too, and then fails: there is none
        assert len(taken) == count
        assert sum(n * index for n, index in enumerate(taken, start=1)) == checksum


@pytest.mark.parametrize("family", RULES)
def test_frames_become_as_large_as_by_transformers(family: str) -> None:
    for frames, height, width, capped, new_height, new_width in RECORDED[family]["sizes"]:
        rules = RULES[family].of({"cap_pixels_per_frame": capped})
        assert rules.frame_size(frames, height, width) == (new_height, new_width)


@given(
    total=st.integers(1, 3000),
    source_fps=st.sampled_from([1.0, 23.976, 25.0, 29.97, 60.0]),
    fps=st.sampled_from([0.3, 1.0, 2.0, 4.0]),
)
def test_qwen3_takes_the_frames_that_its_own_function_takes(
    total: int, source_fps: float, fps: float
) -> None:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    rules = Qwen3VideoRules.of({})
    settings = SimpleNamespace(fps=2, min_frames=4, max_frames=768)
    metadata = SimpleNamespace(total_num_frames=total, fps=source_fps)
    expected = Qwen3VLVideoProcessor.sample_frames(settings, metadata, fps=fps)
    assert rules.sample(total, source_fps, fps, None) == expected.tolist()


def test_steps_that_add_up_to_less_than_the_video_take_no_frame_behind_it() -> None:
    taken = RULES["qwen2"].of({"max_frames": 64}).sample(63, 1.0, None, 26)
    assert len(taken) == 26
    assert taken[-1] == 60


@pytest.mark.parametrize("family", RULES)
@given(
    total=st.integers(1, 2000),
    asked=st.integers(1, 900) | st.floats(0.01, 200),
    source_fps=st.floats(0.5, 240),
)
def test_frames_ascend_within_the_video_and_the_limit(
    family: str, total: int, asked: float, source_fps: float
) -> None:
    number = isinstance(asked, int)
    rules = RULES[family].of({"max_frames": 64})
    fps, n = (None, asked) if number else (asked, None)
    taken = rules.sample(total, source_fps, fps, n)
    assert 1 <= len(taken) <= min(64, total)
    assert taken == sorted(set(taken))
    assert 0 <= taken[0] <= taken[-1] < total


@pytest.mark.parametrize("family", RULES)
def test_a_request_that_says_nothing_gets_the_checkpoints_rate_or_number(family: str) -> None:
    default, slow = RULES[family].of({}), RULES[family].of({"fps": 1, "min_frames": 2})
    few = RULES[family].of({"num_frames": 6})
    assert len(default.sample(300, 30.0, None, None)) == 20
    assert len(slow.sample(300, 30.0, None, None)) == 10
    assert len(few.sample(300, 30.0, None, None)) == 6


def test_the_older_names_of_the_pixel_limits_are_read() -> None:
    rules = Qwen2VideoRules.of({"min_pixels": 3136, "max_pixels": 12845056, "size": {"x": 1}})
    assert (rules.shortest_edge, rules.longest_edge) == (3136, 12845056)


def test_frames_that_are_not_to_be_resized_keep_their_size() -> None:
    for rules in (kind.of({"do_resize": False}) for kind in RULES.values()):
        assert rules.frame_size(4, 30, 50) == (30, 50)


def test_settings_that_the_rules_do_not_know_change_nothing() -> None:
    known = Qwen3VideoRules.of({"patch_size": 8})
    assert (
        Qwen3VideoRules.of({"patch_size": 8, "video_processor_type": "X", "device": None}) == known
    )
    assert isinstance(known, QwenVideoRules)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"processor_config.json": {"video_processor": {"fps": 1}}}, 1),
        ({"processor_config.json": {}, "video_preprocessor_config.json": {"fps": 2}}, 2),
        ({"preprocessor_config.json": {"fps": 3}}, 3),
        ({"video_preprocessor_config.json": {"fps": 2}, "preprocessor_config.json": {"fps": 3}}, 2),
        ({}, None),
    ],
)
def test_settings_come_from_the_first_file_that_has_them(
    files: dict[str, Any], expected: int | None, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert video_settings(tmp_path).get("fps") == expected
