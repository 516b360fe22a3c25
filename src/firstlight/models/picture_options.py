"""What families let requests choose about their pictures: a budget of pixels, a side, or tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firstlight.errors import MediaError
from firstlight.media.picture_options import Knob, PictureOptions

LOW_ROWS: Final = 256
"""Rows of a picture of low detail, where a family can choose: 512 x 512 pixels of Qwen3-VL."""
MAX_PIXELS: Final = 64 << 20
"""What ``original`` and ``max_pixels`` may ask for; a picture of so many fills gigabytes."""
MAX_TILES: Final = 64
_BOOL: Final = Knob("True or False", lambda value: isinstance(value, bool))


def pixel_budget(size: Any, cell: int) -> PictureOptions:
    """A picture keeps its shape and is scaled into a range of pixels.

    Args:
        size: the processor's ``size``, with ``shortest_edge`` and ``longest_edge`` as pixel counts.
        cell: side of the square of one row, in pixels.
    """
    if not size["shortest_edge"] or not size["longest_edge"]:
        return PictureOptions()
    least, most = int(size["shortest_edge"]), int(size["longest_edge"])
    limit = max(most, MAX_PIXELS)
    low = min(most, max(least, LOW_ROWS * cell * cell))
    edges = f"'shortest_edge' from 1 to {most} and 'longest_edge' from {cell**2} to {limit}"

    def settle(chosen: Mapping[str, Any]) -> Mapping[str, object]:
        asked = {"shortest_edge": least, "longest_edge": most, **chosen.get("size", {})}
        for name, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            if name in chosen:
                asked[edge] = chosen[name]
        if chosen and "min_pixels" not in chosen and "size" not in chosen:
            # Somebody who lowers the upper limit alone means it.
            asked["shortest_edge"] = min(asked["shortest_edge"], asked["longest_edge"])
        if asked["shortest_edge"] > asked["longest_edge"]:
            raise MediaError(
                f"mm_processor_kwargs: at least {asked['shortest_edge']} and at most "
                f"{asked['longest_edge']} pixels contradict each other"
            )
        return {"size": asked}

    return PictureOptions(
        details={
            "low": {"size": {"longest_edge": low}},
            "original": {"size": {"longest_edge": limit}},
        },
        knobs={
            "min_pixels": _int(1, most),
            "max_pixels": _int(cell**2, limit),
            "size": _edges(edges, shortest_edge=(1, most), longest_edge=(cell**2, limit)),
        },
        own={"size": {"shortest_edge": least, "longest_edge": most}},
        settle=settle,
    )


def longest_edge(size: Any, cell: int, tower: int) -> PictureOptions:
    """A picture keeps its shape and is scaled down to a longest side.

    Args:
        size: the processor's ``size``, with ``longest_edge`` in pixels.
        cell: side of the square of one row, in pixels.
        tower: the longest side that the tower has positions for, in pixels.
    """
    if not size["longest_edge"]:
        return PictureOptions()
    own = int(size["longest_edge"])
    low, limit = int(LOW_ROWS**0.5) * cell, max(own, tower)
    return PictureOptions(
        details={
            "low": {"size": {"longest_edge": min(own, low)}},
            "original": {"size": {"longest_edge": limit}},
        },
        knobs={
            "size": _edges(f"'longest_edge' from {cell} to {limit}", longest_edge=(cell, limit))
        },
        own={"size": {"longest_edge": own}},
    )


def split(size: Any, tile: int, splits: bool) -> PictureOptions:
    """A picture is scaled to a longest side and cut into tiles beside a view of the whole.

    Args:
        size: the processor's ``size``, with ``longest_edge`` in pixels.
        tile: side of a tile, in pixels.
        splits: whether the processor cuts at all.
    """
    if not size["longest_edge"]:
        return PictureOptions()
    own = int(size["longest_edge"])
    return PictureOptions(
        details={"low": {"do_image_splitting": False}},
        knobs={
            "do_image_splitting": _BOOL,
            # Beyond the checkpoint's own the tokens that name a tile's place may be missing.
            "size": _edges(f"'longest_edge' from {tile} to {own}", longest_edge=(tile, own)),
        },
        own={"do_image_splitting": splits, "size": {"longest_edge": own}},
    )


def tiles(least: int, most: int) -> PictureOptions:
    """A picture is stretched over the best grid of ``least`` to ``most`` tiles."""

    def settle(chosen: Mapping[str, Any]) -> Mapping[str, object]:
        low, high = chosen.get("min_patches", least), chosen.get("max_patches", most)
        if low > high:
            raise MediaError(
                f"mm_processor_kwargs: at least {low} and at most {high} tiles contradict each "
                "other"
            )
        return chosen

    return PictureOptions(
        details={"low": {"crop_to_patches": False}},
        knobs={
            "crop_to_patches": _BOOL,
            "min_patches": _int(1, MAX_TILES),
            "max_patches": _int(1, MAX_TILES),
        },
        own={"crop_to_patches": True, "min_patches": least, "max_patches": most},
        settle=settle,
    )


def _int(low: int, high: int) -> Knob:
    return Knob(f"an int from {low} to {high}", lambda value: _is_int(value, low, high))


def _edges(accepted: str, **ranges: tuple[int, int]) -> Knob:
    """A ``size`` with exactly these edges."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and set(value) == set(ranges)
            and all(_is_int(value[name], *ends) for name, ends in ranges.items())
        )

    return Knob(f"a mapping with {accepted}", check)


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
