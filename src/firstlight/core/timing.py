"""Where a request's time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firstlight.core.reason import Decision


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step a request took part in.

    Attributes:
        tokens: rows of the batch that were this request's own.
    """

    decision: Decision
    seconds: float
    tokens: int = 0

    def as_dict(self) -> dict[str, object]:
        """The JSON form: phase, mode, bucket, tokens, own_tokens, reason, detail, ms."""
        d = self.decision
        return {
            "phase": d.phase.value,
            "mode": d.mode.value,
            "bucket": d.bucket,
            "tokens": d.tokens,
            "own_tokens": self.tokens,
            "reason": d.reason.value,
            "detail": d.detail,
            "ms": round(self.seconds * 1e3, 3),
        }


class Outcome(StrEnum):
    """How a cache served one picture."""

    HIT = "hit"
    MISS = "miss"
    JOINED = "joined"
    """It was being made already, for another request or another place of this one."""
    SKIPPED = "skipped"
    """It was not asked: what it would have been needed for is in the prefix cache."""


@dataclass(slots=True)
class PictureTiming:
    """What one picture of a request took.

    Attributes:
        width, height: of the upright picture, in pixels.
        rows: rows of the decoder that it fills.
        detail: as the request asked.
        options: what ``detail`` and the request's own options changed for the processor; empty
            where they are without effect.
        artifact: whether what the processor makes of it was there.
        encoder: whether its encoded rows were.
        read_s: seconds until its content was read or fetched, and hashed.
        decode_s, process_s: seconds of decoding and of the processor, where this request caused
            them.
        encode_s: seconds of the tower's call that it was part of, other pictures' share included.
    """

    width: int = 0
    height: int = 0
    rows: int = 0
    detail: str = "auto"
    options: Mapping[str, object] = field(default_factory=dict)
    artifact: Outcome = Outcome.MISS
    encoder: Outcome = Outcome.SKIPPED
    read_s: float = 0.0
    decode_s: float = 0.0
    process_s: float = 0.0
    encode_s: float = 0.0

    def encoded(self, outcome: Outcome, seconds: float = 0.0) -> None:
        """Its rows were wanted; what came of the first time counts, and all seconds do."""
        if self.encoder is Outcome.SKIPPED:
            self.encoder = outcome
        self.encode_s += seconds

    def as_dict(self) -> dict[str, object]:
        """The JSON form: size, rows, detail, options, artifact, encoder, milliseconds by stage."""
        stages = ("read", "decode", "process", "encode")
        return {
            "size": [self.width, self.height],
            "rows": self.rows,
            "detail": self.detail,
            "options": dict(self.options),
            "artifact": self.artifact.value,
            "encoder": self.encoder.value,
            "ms": {name: round(getattr(self, f"{name}_s") * 1e3, 3) for name in stages},
        }


@dataclass(slots=True)
class Timings:
    """Seconds of one request, by stage; ``media`` is fetch, decode and processor together.

    Attributes:
        steps: the steps it took part in.
        pictures: its pictures, in prompt order.
    """

    media_s: float = 0.0
    encode_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0
    steps: list[StepRecord] = field(default_factory=list)
    pictures: list[PictureTiming] = field(default_factory=list)

    def picture(self, item: int) -> PictureTiming:
        """Of the request's picture number ``item``."""
        while len(self.pictures) <= item:
            self.pictures.append(PictureTiming())
        return self.pictures[item]

    def as_ms(self) -> dict[str, float]:
        """Milliseconds by stage: media, encode, prefill, decode, ttft, total."""
        names = ("media", "encode", "prefill", "decode", "ttft", "total")
        return {name: round(getattr(self, f"{name}_s") * 1e3, 3) for name in names}
