"""One picture, and each way to time what is done to it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from firstlight.media import Artifact, ImagePipeline, MediaItem, Prepared
from firstlight.models.adapter import Adapter
from firstlight.models.reference_processor import ReferenceProcessor


class Case:
    """A picture's bytes and what is timed of them. Every method is one turn of a contestant.

    Args:
        data: the file.
        pipeline: with one thread.
        batch: pictures that :meth:`many` prepares at once.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        data: bytes,
        adapter: Adapter,
        pipeline: ImagePipeline,
        *,
        batch: int,
        clock: Callable[[], float],
    ) -> None:
        self.data = data
        self.batch = batch
        self._adapter = adapter
        self._pipeline = pipeline
        self._clock = clock
        self._cold: list[Prepared] = []

    def cold(self) -> float:
        """Seconds from bytes to artifact with nothing cached."""
        self._pipeline.flush()
        began = self._clock()
        (prepared,) = self._pipeline.prepare([MediaItem(self.data)])
        seconds = self._clock() - began
        self._cold.append(prepared)
        return seconds

    def warm(self) -> float:
        """The same of a picture that the artifact cache has."""
        self.artifact()
        began = self._clock()
        self._pipeline.prepare([MediaItem(self.data)])
        return self._clock() - began

    def encode(self) -> float:
        """Seconds of the tower."""
        artifact = self.artifact()
        began = self._clock()
        with torch.no_grad():
            self._adapter.media_rows([artifact])
        return self._clock() - began

    def many(self, pipeline: ImagePipeline) -> float:
        """Seconds of a batch, each of its pictures made as if it were the only one."""
        items = [MediaItem(self.data)] * self.batch
        began = self._clock()
        # What bypasses the cache is made anew although the bytes are equal.
        pipeline.prepare(items, bypass=True)
        return self._clock() - began

    def theirs(self, reference: ReferenceProcessor) -> float:
        """Seconds of transformers from the same bytes."""
        began = self._clock()
        reference(self.data)
        return self._clock() - began

    def artifact(self) -> Artifact:
        """The picture's, cached from here on."""
        return self._pipeline.lookup([MediaItem(self.data)])[0]

    def stages(self, rounds: int) -> dict[str, float]:
        """Medians of the stages of the last ``rounds`` cold turns, in seconds."""
        last = self._cold[-rounds:]
        return {
            "read": statistics.median(found.read_s for found in last),
            "decode": statistics.median(found.decode_s for found in last),
            "process": statistics.median(found.process_s for found in last),
        }


def same(artifact: Artifact, features: Mapping[str, Any]) -> bool:
    """Whether an artifact has exactly the tensors of transformers' features."""
    return all(
        torch.equal(tensor, torch.as_tensor(features[name]))
        for name, tensor in artifact.tensors.items()
    )
