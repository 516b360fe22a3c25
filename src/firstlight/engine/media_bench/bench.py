"""The contestants of one size and format, and the machine they ran on."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, Self

import PIL
import torch

from firstlight.config import EngineConfig
from firstlight.engine.build import load
from firstlight.engine.media_bench.case import Case, same
from firstlight.engine.media_bench.pictures import encoded_square
from firstlight.engine.media_bench.row import MediaRow
from firstlight.engine.media_bench.sample import interleave
from firstlight.engine.pictures import open_pipeline
from firstlight.errors import ConfigError
from firstlight.media import ImagePipeline
from firstlight.models.fuse import fuse_model
from firstlight.models.loading import LoadedModel
from firstlight.models.reference_processor import reference_processors


class MediaBench:
    """A model's pipelines and tower, ready to be measured; no graph is captured.

    Use it in a ``with`` statement, which ends its threads.

    Args:
        config: ``media_threads`` is what one thread is compared with, ``threads`` what one
            operation may use, of firstlight and of transformers alike.
        clock: seconds, monotonic.

    Raises:
        ConfigError: the model takes no pictures.
    """

    def __init__(
        self, config: EngineConfig, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._config = config
        self._clock = clock
        self._model = load(config)
        if self._model.image_processor is None:
            raise ConfigError(f"{self._model.name} takes text only; there are no pictures to time")
        if config.fuse:
            fuse_model(self._model.adapter)
        self._references = reference_processors(self._model.path, self._model.adapter)
        self._one = _pipeline(replace(config, media_threads=1), self._model)
        self._several = _pipeline(config, self._model)

    def measure(self, size: int, kind: str, rounds: int) -> MediaRow:
        """Time one size and format.

        Args:
            size: side of the square, in pixels.
            kind: a format by Pillow's name.
            rounds: that count; one more goes before them.

        Raises:
            MediaError: such a picture cannot be made or is not accepted.
        """
        threads = self._config.media_threads
        case = Case(
            encoded_square(size, kind),
            self._model.adapter,
            self._one,
            batch=2 * max(threads, 2),
            clock=self._clock,
        )
        contestants: dict[str, Callable[[], float | None]] = {
            "cold": case.cold,
            "warm": case.warm,
            "encode": case.encode,
            "one": partial(case.many, self._one),
            "several": partial(case.many, self._several),
        }
        for reference in self._references:
            contestants[f"their {reference.backend}"] = partial(case.theirs, reference)
        samples = interleave(contestants, rounds=rounds, clock=self._clock)
        artifact = case.artifact()
        return MediaRow(
            size=size,
            format=kind.upper(),
            file_bytes=len(case.data),
            rows=self._model.adapter.rows(artifact),
            cold=samples["cold"],
            warm=samples["warm"],
            stages={**case.stages(rounds), "encode": samples["encode"].median},
            theirs={r.backend: samples[f"their {r.backend}"] for r in self._references},
            one=samples["one"],
            several=samples["several"],
            batch=case.batch,
            threads=threads,
            same=same(artifact, self._references[0](case.data)),
        )

    def about(self) -> dict[str, Any]:
        """What was measured on what; JSON-ready."""
        processor = self._model.image_processor
        assert processor is not None
        return {
            "model": self._model.name,
            "processor": processor.name,
            "dtype": str(self._model.adapter.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "media_threads": self._config.media_threads,
            "backends": [reference.backend for reference in self._references],
            "machine": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
            "pillow": PIL.__version__,
        }

    def close(self) -> None:
        """End the threads."""
        self._one.close()
        self._several.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _pipeline(config: EngineConfig, model: LoadedModel) -> ImagePipeline:
    pipeline = open_pipeline(config, model, any_path=True)
    assert pipeline is not None, "there is an image processor"
    return pipeline
