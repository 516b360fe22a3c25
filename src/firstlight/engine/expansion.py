"""A tokenised prompt with one token per picture or video, and the same with all their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from firstlight.core.span import Span
from firstlight.errors import MediaError, RequestError
from firstlight.media.artifact import IMAGE, VIDEO, Artifact

NAMES: Final = {IMAGE: "picture", VIDEO: "video"}
"""What messages call an item of each modality."""


class MediaLayout(Protocol):
    """What a prompt must know of a model's pictures and videos; an adapter has it."""

    @property
    def placeholder(self) -> str:
        """What the chat template writes for one picture; empty for a text-only model."""
        ...

    @property
    def placeholder_text(self) -> str:
        """What takes the placeholder's place before tokenising; holds the media token once."""
        ...

    @property
    def media_token_id(self) -> int | None:
        """The id whose positions a picture's rows fill."""
        ...

    @property
    def video_placeholder(self) -> str:
        """What the chat template writes for one video; empty for a model that takes none."""
        ...

    @property
    def video_token_id(self) -> int | None:
        """The id whose positions a video's rows fill."""
        ...

    def video_text(self, artifact: Artifact) -> str:
        """What takes one video's placeholder's place; holds the video token once."""
        ...

    def expand(self, artifact: Artifact) -> list[int]:
        """The token ids that replace one media token of the tokenised prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the decoder sees it.

    Attributes:
        ids: token ids, placeholders expanded.
        spans: where media rows go, in order of position; ``item`` indexes ``artifacts``.
        artifacts: one per picture or video; those of each modality in prompt order.
    """

    ids: list[int]
    spans: tuple[Span, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


def placeholders(layout: MediaLayout) -> dict[str, str]:
    """The placeholder of each modality that a model takes."""
    found = {IMAGE: layout.placeholder, VIDEO: layout.video_placeholder}
    return {modality: placeholder for modality, placeholder in found.items() if placeholder}


def expand(ids: list[int], layout: MediaLayout, artifacts: Sequence[Artifact]) -> Prompt:
    """Put each item's tokens in the place of one media token, and note where its rows go.

    Args:
        artifacts: of each modality in the order of its placeholders.

    Raises:
        RequestError: the number of placeholders of a modality is not that of its items.
    """
    waiting = _waiting(ids, layout, artifacts)
    if not waiting:
        return Prompt(ids)
    expanded: list[int] = []
    spans: list[Span] = []
    for token in ids:
        items = waiting.get(token)
        if items is None:
            expanded.append(token)
            continue
        item = next(items)
        inserted = layout.expand(artifacts[item])
        spans += _spans(inserted, token, item, len(expanded))
        expanded += inserted
    return Prompt(expanded, tuple(spans), tuple(artifacts))


def _waiting(
    ids: list[int], layout: MediaLayout, artifacts: Sequence[Artifact]
) -> dict[int, Iterator[int]]:
    """The items that each media token of the prompt stands for, in order."""
    waiting: dict[int, Iterator[int]] = {}
    tokens = {IMAGE: layout.media_token_id, VIDEO: layout.video_token_id}
    names = placeholders(layout)
    for modality, token in tokens.items():
        items = [i for i, artifact in enumerate(artifacts) if artifact.modality == modality]
        if token is None or modality not in names:
            if items:
                takes = "text only" if not names else f"no {NAMES[modality]}s"
                raise MediaError(f"{len(items)} {NAMES[modality]}s, but the model takes {takes}")
            continue
        found = ids.count(token)
        if found != len(items):
            raise RequestError(
                f"the prompt holds {found} placeholders {names[modality]!r}, "
                f"but {len(items)} {NAMES[modality]}s are given"
            )
        if items:
            waiting[token] = iter(items)
    return waiting


def _spans(ids: Sequence[int], media_id: int, item: int, offset: int) -> list[Span]:
    """One span per run of the media token in an item's tokens."""
    spans: list[Span] = []
    row = start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and (ids[end] == media_id) == (ids[start] == media_id):
            continue
        if ids[start] == media_id:
            spans.append(Span(item, offset + start, offset + end, row))
            row += end - start
        start = end
    if not row:
        raise MediaError("a picture or video was expanded to no media tokens")
    return spans
