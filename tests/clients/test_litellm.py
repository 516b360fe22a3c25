"""litellm's own client, its provider ``openai`` with an address."""

from __future__ import annotations

from pathlib import Path

from firstlight.demo import pictures
from tests.clients.serving import Served
from tests.clients.suites import run_suite


def test_litellm_chats_streams_shows_pictures_and_calls_tools(
    bundled: Served, tooled: Served, tmp_path: Path
) -> None:
    picture = next(picture for picture in pictures() if picture.in_distribution)
    outcomes = run_suite(
        "litellm",
        "litellm_calls.py",
        tmp_path,
        FIRSTLIGHT_URL=bundled.url,
        FIRSTLIGHT_TOOLS=tooled.url,
        FIRSTLIGHT_PICTURE=str(picture.path),
        FIRSTLIGHT_QUESTION=picture.question,
        FIRSTLIGHT_ANSWER=picture.actual,
        LITELLM_LOCAL_MODEL_COST_MAP="True",  # otherwise it asks the network for prices
    )
    assert not outcomes.failed
    assert not outcomes.skipped
    assert len(outcomes.passed) == 9
