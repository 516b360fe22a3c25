"""Where a request's time went."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Timings:
    """Seconds of one request, by stage; ``media`` is fetch, decode and processor together."""

    media_s: float = 0.0
    encode_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0
    steps: list[StepRecord] = field(default_factory=list)

    def as_ms(self) -> dict[str, float]:
        """Milliseconds by stage: media, encode, prefill, decode, ttft, total."""
        names = ("media", "encode", "prefill", "decode", "ttft", "total")
        return {name: round(getattr(self, f"{name}_s") * 1e3, 3) for name in names}
