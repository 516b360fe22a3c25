"""Makes the artifacts of videos: read the frames or the file, decode, process."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

import PIL

from firstlight.errors import MediaError
from firstlight.media.animation import decode_animation, is_animation
from firstlight.media.artifact import VIDEO
from firstlight.media.artifact_maker import Made, Miss, fingerprint_or_own, make_each
from firstlight.media.colour import WHITE, Colour
from firstlight.media.identity import Snapshot, request_options, take_snapshot
from firstlight.media.source import SourceLoader
from firstlight.media.video import DecodedVideo, VideoLimits, VideoOptions, frames_digest
from firstlight.media.video_file import decode_file, decoder_version
from firstlight.media.video_frames import decode_frames
from firstlight.media.video_processor import VideoProcessor

OPTIONS: Final = ("fps", "num_frames")


@dataclass(frozen=True, slots=True, eq=False)
class FramesSnapshot(Snapshot):
    """A list of frames at one moment.

    Attributes:
        frames: of each its own snapshot.
    """

    frames: tuple[Snapshot, ...]


class VideoMaker:
    """The videos of one model. Threads share it.

    Args:
        processor: of the model.
        loader: reads frames and files within the policy.
        limits: what a video may be.
        background: what shows through transparent pixels of a frame.
        workers: decodes and processes the videos of a batch side by side; None does it in turn.
        clock: seconds, monotonic.
    """

    modality = VIDEO

    def __init__(
        self,
        processor: VideoProcessor,
        loader: SourceLoader,
        *,
        limits: VideoLimits | None = None,
        background: Colour = WHITE,
        workers: Executor | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._processor = processor
        self._loader = loader
        self._limits = limits or VideoLimits()
        self._background = background
        self._workers = workers
        self._clock = clock
        self.fingerprint = self._fingerprint()

    def options(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """The options of one video that count.

        Raises:
            MediaError: an option that is not known: it cannot be honoured.
        """
        options = request_options(fields, {})
        unknown = sorted(options.keys() - set(OPTIONS))
        if unknown:
            raise MediaError(f"the option {unknown[0]!r} of a video is not supported")
        return options

    def snapshot(self, source: object) -> Snapshot:
        """Read a list of frames, or a file; nothing is decoded, but PIL images are loaded.

        Raises:
            MediaError: it cannot be read; of a list, with the frame's number.
        """
        if isinstance(source, list | tuple):
            return self._frames(source)
        data = self._loader.load(source)
        if not isinstance(data, bytes):
            raise MediaError("a video is a list of frames or a file, not one picture")
        return take_snapshot(data)

    def make(self, misses: Sequence[Miss]) -> list[Made | Exception]:
        """Decode and process each video; what is wrong with one is no other's failure."""
        return make_each(self.make_one, misses, self._workers)

    def make_one(self, miss: Miss) -> Made:
        """Decode and process one video.

        Raises:
            MediaError: it cannot be decoded, or the processor refuses it.
        """
        started = self._clock()
        video = self._decode(miss)
        decoded_at = self._clock()
        artifact = self._processor.artifact(video, str(miss.key))
        return Made(artifact, decoded_at - started, self._clock() - decoded_at)

    def _frames(self, source: Sequence[object]) -> FramesSnapshot:
        self._limits.check_frames(len(source))
        frames = []
        for index, frame in enumerate(source):
            try:
                frames.append(take_snapshot(self._loader.load(frame)))
            except MediaError as error:
                raise MediaError(f"frame {index}: {error}") from error
        digest = frames_digest([frame.digest for frame in frames])
        checks = ",".join(frame.check for frame in frames)
        check = f"{len(frames)}.{zlib.crc32(checks.encode()):08x}"
        return FramesSnapshot(b"", digest, check, tuple(frames))

    def _decode(self, miss: Miss) -> DecodedVideo:
        options = VideoOptions(**dict(miss.options))  # type: ignore[arg-type]
        rules, limits, snapshot = self._processor.rules, self._limits, miss.snapshot
        if isinstance(snapshot, FramesSnapshot):
            frames = [frame.data for frame in snapshot.frames]
            return decode_frames(frames, rules, options, limits, snapshot.digest, self._background)
        data, digest = snapshot.data, snapshot.digest
        assert isinstance(data, bytes)
        if is_animation(data):
            return decode_animation(data, rules, options, limits, digest, self._background)
        return decode_file(data, rules, options, limits, digest)

    def _fingerprint(self) -> str:
        return fingerprint_or_own(
            {
                "processor": self._processor.fingerprint(),
                "pillow": PIL.__version__,
                "background": self._background,
                "decoder": decoder_version(),
            }
        )
