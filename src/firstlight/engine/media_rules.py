"""What the configuration says of the pictures and videos of every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firstlight.config import EngineConfig
from firstlight.engine.messages import MediaSource
from firstlight.engine.video_parts import VideoSource
from firstlight.errors import ConfigError, MediaError
from firstlight.models.loading import LoadedModel

_NAMES: Mapping[str, str] = {"image": "pictures", "video": "videos"}


@dataclass(frozen=True, slots=True)
class MediaRules:
    """Bounds and defaults.

    Attributes:
        limits: most ``image`` and ``video`` of a request; a kind that is not named has none.
        options: ``mm_processor_kwargs`` of every request, behind its own.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, config: EngineConfig) -> MediaRules:
        """The rules of a configuration."""
        return cls(config.limit_mm_per_prompt or {}, config.mm_processor_kwargs or {})

    def check(self, sources: Sequence[MediaSource]) -> None:
        """Raise MediaError for a request with more pictures or videos than it may have."""
        videos = sum(isinstance(source, VideoSource) for source in sources)
        for kind, n in (("image", len(sources) - videos), ("video", videos)):
            most = self.limits.get(kind)
            if most is not None and n > most:
                raise MediaError(
                    f"the request holds {n} {_NAMES[kind]}; this server takes at most {most} "
                    "(limit_mm_per_prompt)"
                )

    def asked(self, own: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """The ``mm_processor_kwargs`` of a request's pictures, its ``own`` going before ours."""
        return {**self.options, **(own or {})} if self.options else own


def check_media_rules(config: EngineConfig, model: LoadedModel) -> None:
    """Raise ConfigError for options of every picture that the model's processor does not take."""
    options = config.mm_processor_kwargs
    if not options:
        return
    if model.image_processor is None:
        raise ConfigError(
            f"mm_processor_kwargs = {dict(options)!r:.80}, but {model.name} takes text only"
        )
    try:
        model.image_processor.choices.resolve("auto", options)
    except MediaError as error:
        raise ConfigError(str(error)) from error
