"""What the package shows of itself."""

from __future__ import annotations

import firstlight


def test_dir_lists_every_public_name_the_engine_too() -> None:
    assert set(firstlight.__all__) <= set(dir(firstlight))
    assert "LLM" in dir(firstlight)
