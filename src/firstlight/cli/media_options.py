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


_Domains = Annotated[
    str | None,
    _option(
        "--allowed-media-domains",
        "Hosts that pictures may be fetched from, e.g. images.example.org,.example.com.",
        "LIST",
    ),
]
_AnyHost = Annotated[
    bool, _option("--allow-any-media-host", "Fetch pictures from any host with public addresses.")
]
_Networks = Annotated[
    str | None,
    _option(
        "--trusted-media-networks",
        "Networks that pictures may be fetched from although they are not public, e.g. "
        "10.1.0.0/16.",
        "LIST",
    ),
]
_Ports = Annotated[
    str | None, _option("--media-ports", "Ports that pictures may be fetched from.", "LIST")
]
_Pixels = Annotated[
    int | None, _option("--max-image-pixels", "Most pixels of a picture, width times height.")
]
_Threads = Annotated[
    int | None, _option("--media-threads", "Pictures decoded and processed at the same time.")
]


def media_settings(
    allowed_media_domains: _Domains = None,
    allow_any_media_host: _AnyHost = False,
    trusted_media_networks: _Networks = None,
    media_ports: _Ports = None,
    max_image_pixels: _Pixels = None,
    media_threads: _Threads = None,
) -> dict[str, object]:
    """The settings that were typed; None, the default of each, means "not typed"."""
    return {
        "allowed_media_domains": allowed_media_domains,
        "allow_any_media_host": allow_any_media_host or None,
        "trusted_media_networks": trusted_media_networks,
        "media_ports": media_ports,
        "max_image_pixels": max_image_pixels,
        "media_threads": media_threads,
    }


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
