"""What was measured of one size and format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstlight.engine.media_bench.sample import Sample


@dataclass(frozen=True, slots=True)
class MediaRow:
    """One picture's way, beside transformers' processors on the same bytes.

    Attributes:
        size: side of the square, in pixels.
        format: Pillow's name.
        file_bytes: of the picture's file.
        rows: of the decoder that it fills.
        cold, warm: seconds from bytes to artifact, with an empty artifact cache and a full one,
            in one thread.
        stages: medians of ``read``, ``decode``, ``process`` (cold) and ``encode``, in seconds.
        theirs: transformers' seconds from the same bytes, by backend.
        one, several: seconds of a cold batch in one thread, and in ``threads``.
        batch: pictures of that batch.
        same: whether the artifact has exactly the tensors of transformers' PIL processor.
    """

    size: int
    format: str
    file_bytes: int
    rows: int
    cold: Sample
    warm: Sample
    stages: Mapping[str, float]
    theirs: Mapping[str, Sample]
    one: Sample
    several: Sample
    batch: int
    threads: int
    same: bool

    @property
    def fastest(self) -> str:
        """The backend of transformers' that took least."""
        return min(self.theirs, key=lambda backend: self.theirs[backend].median)

    @property
    def ratio(self) -> float:
        """Cold over transformers' fastest, for one picture: below 1 is faster."""
        return self.cold.over(self.theirs[self.fastest])

    @property
    def speedup(self) -> float:
        """Pictures per second in all threads over those of transformers' fastest, in one."""
        return self.batch / self.several.over(self.theirs[self.fastest])

    def describe(self) -> dict[str, Any]:
        """JSON-ready: times in ms a picture, rates in pictures per second."""
        fastest = self.theirs[self.fastest]
        return {
            "size": self.size,
            "format": self.format,
            "file_bytes": self.file_bytes,
            "rows": self.rows,
            "ms": {
                "cold": self.cold.describe(),
                **{name: round(s * 1e3, 4) for name, s in self.stages.items()},
                "warm": self.warm.describe(),
                "transformers": {name: s.describe() for name, s in self.theirs.items()},
            },
            "fastest": self.fastest,
            "ratio": round(self.ratio, 3),
            "images_per_s": {
                "threads": self.threads,
                "batch": self.batch,
                "one_thread": round(self.batch / self.one.median, 2),
                "all_threads": round(self.batch / self.several.median, 2),
                "warm": round(1 / self.warm.median, 2),
                "transformers": round(1 / fastest.median, 2),
            },
            "speedup": round(self.speedup, 3),
            "same_tensors": self.same,
        }
