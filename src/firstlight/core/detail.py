"""How much of a picture a request wants to be seen: OpenAI's ``detail``."""

from __future__ import annotations

from typing import Final

DETAILS: Final = ("auto", "low", "high", "original")
"""``auto`` and ``high``: as the checkpoint's processor is set; ``low``: few rows; ``original``: not
scaled down, where the family has no upper limit of its own."""
