"""All tiny architectures by name.

They share one decoder shape (hidden 64, three layers, 4/2 heads of 16), so that differences between
families are differences of their code, not of their size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tools.tiny.decoders import DECODERS, MORE_DECODERS, decoder
from tools.tiny.family import Family
from tools.tiny.gemma import PREFIX_LM
from tools.tiny.vision import VISION

TEXT_FAMILIES = tuple(DECODERS)
MORE_TEXT_FAMILIES = tuple(MORE_DECODERS)
VISION_FAMILIES = tuple(VISION)
PREFIX_LM_FAMILIES = tuple(PREFIX_LM)

FAMILIES: dict[str, Callable[[], Family]] = {
    **{name: partial(decoder, name) for name in (*TEXT_FAMILIES, *MORE_TEXT_FAMILIES)},
    **VISION,
    **PREFIX_LM,
}
"""Name of each family to its builder."""
