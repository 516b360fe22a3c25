"""Steps overlap where it saves something."""

from __future__ import annotations

import pytest

from firstlight.config import EngineConfig
from firstlight.engine.flight import overlaps
from firstlight.errors import ConfigError


@pytest.mark.parametrize(
    ("device", "schedule", "expected"),
    [
        ("cpu", "auto", False),
        ("cuda", "auto", True),
        ("cuda:1", "auto", True),
        ("cpu", "on", True),
        ("cuda", "off", False),
    ],
)
def test_steps_overlap_on_a_gpu_unless_something_else_is_said(
    device: str, schedule: str, expected: bool
) -> None:
    assert overlaps(EngineConfig(device=device, overlap_schedule=schedule)) is expected


def test_another_word_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"overlap_schedule = 'yes'; accepted: 'auto', 'on' or"):
        EngineConfig(overlap_schedule="yes")
