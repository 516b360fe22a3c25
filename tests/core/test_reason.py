"""Each reason code is explained."""

from __future__ import annotations

import pytest

from firstlight.core.reason import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_meaning(reason: Reason) -> None:
    assert reason.meaning.endswith(".")
