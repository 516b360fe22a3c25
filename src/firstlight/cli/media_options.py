"""The options about pictures, and how they become values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from firstlight.core.detail import DETAILS
from firstlight.errors import ConfigError


def _option(name: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(
        name, help=text, rich_help_panel="Pictures", metavar=metavar, show_default=False
    )


@dataclass(frozen=True, slots=True)
class PictureWish:
    """How the pictures of a command are to be prepared.

    Attributes:
        detail: one of ``DETAILS``.
        kwargs: ``mm_processor_kwargs``, or None.
    """

    detail: str = "auto"
    kwargs: Mapping[str, object] | None = None


_Detail = Annotated[
    str, _option("--detail", "How much of a picture is seen: auto, low, high or original.")
]
_Kwargs = Annotated[
    str | None,
    _option(
        "--mm-processor-kwargs",
        "What the image processor is to do otherwise, e.g. '{\"max_pixels\": 262144}'.",
        "JSON",
    ),
]


def picture_wish(detail: _Detail = "auto", mm_processor_kwargs: _Kwargs = None) -> PictureWish:
    """What was typed.

    Raises:
        ConfigError: an unknown detail, or arguments that are no JSON object.
    """
    if detail not in DETAILS:
        raise ConfigError(f"--detail = {detail!r}; accepted: {', '.join(DETAILS)}")
    return PictureWish(detail, _json_object(mm_processor_kwargs))


def _json_object(text: str | None) -> Mapping[str, object] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--mm-processor-kwargs = {text!r:.80}; accepted: a JSON object")
    return value
