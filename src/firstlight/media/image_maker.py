"""Makes the artifacts of images: read, decode, process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from types import MappingProxyType
from typing import Final

import PIL

from firstlight.errors import MediaError
from firstlight.media.artifact_maker import Made, Miss, fingerprint_or_own, make_each
from firstlight.media.colour import WHITE, Colour
from firstlight.media.decode import ImageLimits, decode_image
from firstlight.media.identity import Snapshot, request_options, take_snapshot
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import SourceLoader

DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {"detail": "auto", "mm_processor_kwargs": None}
)


class ImageMaker:
    """The images of one model; subclasses may override every step. Threads share it.

    Args:
        processor: of the model.
        loader: reads sources within the policy.
        limits: what an image may be; the processor's own side ratio holds as well.
        background: what shows through transparent pixels.
        workers: decodes and processes the images of a batch side by side; None does it in turn.
            Not the store's pool: a batch waits there for these.
        clock: seconds, monotonic.
    """

    modality = "image"

    def __init__(
        self,
        processor: ImageProcessor,
        loader: SourceLoader,
        *,
        limits: ImageLimits | None = None,
        background: Colour = WHITE,
        workers: Executor | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._processor = processor
        self._loader = loader
        self._limits = (limits or ImageLimits()).within(processor.side_ratio_limit())
        self._background = background
        self._workers = workers
        self._clock = clock
        self.fingerprint = self._fingerprint()

    def payload(self) -> Mapping[str, object]:
        """Further facts that decide an artifact, for the fingerprint; none here."""
        return {}

    def options(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """What the request's options change for the processor, in its own words.

        ``detail`` and ``mm_processor_kwargs`` are no more than ways to say it: what comes to the
        same tensors has one key.

        Raises:
            MediaError: an option or a value that cannot be honoured.
        """
        options = request_options(fields, DEFAULTS)
        unknown = sorted(options.keys() - DEFAULTS.keys())
        if unknown:
            raise MediaError(f"the option {unknown[0]!r} of a picture is not supported")
        return self._processor.choices.resolve(
            options.get("detail", "auto"), options.get("mm_processor_kwargs")
        )

    def snapshot(self, source: object) -> Snapshot:
        """Read a source; nothing is decoded, but a PIL image is loaded."""
        return take_snapshot(self._loader.load(source))

    def make(self, misses: Sequence[Miss]) -> list[Made | Exception]:
        """Decode and process each image; what is wrong with one is no other's failure."""
        return make_each(self.make_one, misses, self._workers)

    def make_one(self, miss: Miss) -> Made:
        """Decode and process one image.

        Raises:
            MediaError: it cannot be decoded, or the processor refuses it.
        """
        started = self._clock()
        image = decode_image(
            miss.snapshot.data,
            self._limits,
            miss.snapshot.digest,
            background=self._background,
        )
        decoded_at = self._clock()
        artifact = self._processor.artifact(image, str(miss.key), miss.options)
        return Made(artifact, decoded_at - started, self._clock() - decoded_at)

    def _fingerprint(self) -> str:
        return fingerprint_or_own(
            {
                "processor": self._processor.fingerprint(),
                "pillow": PIL.__version__,
                "background": self._background,
                "payload": self.payload(),
            }
        )
