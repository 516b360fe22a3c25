"""The media pipeline as an engine's settings make it, and what it tells about a request."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from firstlight.config import EngineConfig
from firstlight.core.timing import PictureTiming
from firstlight.engine.heap import share_one_heap
from firstlight.engine.messages import ImageSource, MediaSource
from firstlight.engine.video_parts import VideoSource
from firstlight.errors import ConfigError
from firstlight.media import FetchPolicy, ImageLimits, ImagePipeline, MediaItem, Prepared
from firstlight.media.artifact import VIDEO
from firstlight.media.colour import Colour, parse_colour
from firstlight.models.loading import LoadedModel

_NAMES = {
    "domains": "allowed_media_domains",
    "trusted_networks": "trusted_media_networks",
    "file_root": "allowed_media_root",
}


def fetch_policy(config: EngineConfig, *, any_path: bool) -> FetchPolicy:
    """What may be read.

    Args:
        any_path: whether the caller owns the machine, so that no ``allowed_media_root`` means any
            path instead of none.

    Raises:
        ConfigError: naming the setting.
    """
    root = config.allowed_media_root
    if root is not None and not root.is_dir():
        raise ConfigError(f"allowed_media_root = {str(root)!r} is no folder")
    try:
        return FetchPolicy(
            domains=config.allowed_media_domains,
            any_host=config.allow_any_media_host,
            trusted_networks=config.trusted_media_networks,
            ports=config.media_ports,
            max_redirects=config.media_redirects,
            connect_s=config.media_connect_seconds,
            read_s=config.media_read_seconds,
            total_s=config.media_fetch_seconds,
            max_bytes=config.max_media_bytes,
            file_root=root,
            any_path=any_path and root is None,
        )
    except ConfigError as error:
        name, _, rest = str(error).partition(" ")
        raise ConfigError(f"{_NAMES.get(name, name)} {rest}") from error


def background_colour(config: EngineConfig) -> Colour:
    """What shows through transparent pixels; ConfigError naming the setting for no colour."""
    try:
        return parse_colour(config.media_background)
    except ConfigError as error:
        raise ConfigError(f"media_background = {error}") from error


def check_media_settings(config: EngineConfig) -> None:
    """Raise ConfigError for a setting about pictures that could not be opened with.

    Better before a model is loaded than after.
    """
    fetch_policy(config, any_path=False)
    background_colour(config)


def open_pipeline(
    config: EngineConfig, model: LoadedModel, *, any_path: bool
) -> ImagePipeline | None:
    """The pipeline of one engine, which has to close it; None for a model that takes text only.

    Raises:
        ConfigError: as :func:`fetch_policy`.
    """
    if model.image_processor is None:
        return None
    share_one_heap()
    return ImagePipeline(
        model.image_processor,
        fetch_policy(config, any_path=any_path),
        limits=ImageLimits(max_pixels=config.max_image_pixels),
        background=background_colour(config),
        videos=model.video_processor,
        cache_bytes=config.artifact_cache_bytes,
        fetchers=config.media_fetchers,
        workers=config.media_threads,
        trust_hashes=config.trust_media_hashes,
    )


def media_item(
    source: MediaSource, kwargs: Mapping[str, object] | None, place: str = ""
) -> MediaItem:
    """A picture or video as the pipeline takes it.

    Args:
        kwargs: the request's ``mm_processor_kwargs``, which are about its pictures.
        place: of its request among others, to stand before its own in messages.
    """
    where = f"{place}{source.where}"
    if isinstance(source, VideoSource):
        return MediaItem(source.video, source.options, where=where, modality=VIDEO)
    options = {"detail": source.detail, "mm_processor_kwargs": kwargs}
    return MediaItem(source.image, options, source.content_hash, where)


def picture_timings(
    sources: Seq[MediaSource], prepared: Seq[Prepared], rows: Seq[int]
) -> list[PictureTiming]:
    """What is known of each picture and video before anything is encoded.

    Args:
        rows: rows of the decoder that each fills.
    """
    return [
        PictureTiming(
            width=found.artifact.size[0],
            height=found.artifact.size[1],
            rows=n,
            detail=source.detail if isinstance(source, ImageSource) else "auto",
            options=found.options,
            artifact=found.outcome,
            read_s=found.read_s,
            decode_s=found.decode_s,
            process_s=found.process_s,
        )
        for source, found, n in zip(sources, prepared, rows, strict=True)
    ]
