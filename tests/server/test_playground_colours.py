"""The playground's colours: contrast as WCAG 2.2 counts it, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from firstlight.server.routes.playground import FOLDER

CSS = (FOLDER / "style.css").read_text(encoding="utf-8")
_BLOCKS = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
LIGHT = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", _BLOCKS[0]))
DARK = {**LIGHT, **dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", _BLOCKS[1]))}
STAGES = ("queue", "fetch", "picture", "process", "encode", "prefill", "decode", "other")
TEXT = [
    *((ink, sheet) for ink in ("ink", "soft") for sheet in ("page", "sheet")),
    ("ink", "bad-sheet"),
    ("bad", "bad-sheet"),
    ("accent", "page"),
    ("on-accent", "accent"),
    ("eager", "page"),
    ("on-stage", "graph"),
    *(("on-stage", stage) for stage in STAGES),
]
SHAPES = [
    *((stage, sheet) for stage in STAGES for sheet in ("page", "sheet")),
    *((kind, "sheet") for kind in ("graph", "eager", "padding")),
    ("edge", "page"),
    ("edge", "sheet"),
]


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_highest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("least", "pairs"), [(4.5, TEXT), (3.0, SHAPES)], ids=["text", "shapes"])
def test_contrast_is_enough(
    scheme: Mapping[str, str], least: float, pairs: list[tuple[str, str]]
) -> None:
    found = {pair: round(contrast(scheme[pair[0]], scheme[pair[1]]), 2) for pair in pairs}
    assert {pair: value for pair, value in found.items() if value < least} == {}


def test_every_colour_of_the_light_scheme_has_one_in_the_dark() -> None:
    names = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", _BLOCKS[1]))
    assert names.keys() == LIGHT.keys()
