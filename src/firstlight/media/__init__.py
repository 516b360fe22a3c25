"""From what a caller names as a picture to the processor's tensors.

``load_image`` reads, ``decode_image`` decodes, ``ImageProcessor.artifact`` prepares. The first two
are separate because reading waits for disks and networks while decoding keeps a core busy.
``ImagePipeline`` does all of it for many requests at once, within a ``FetchPolicy``, and keeps what
it made.
"""

from __future__ import annotations

from firstlight.core.timing import Outcome
from firstlight.media.artifact import Artifact
from firstlight.media.decode import DecodedImage, ImageLimits, decode_image
from firstlight.media.media_item import MediaItem, Prepared
from firstlight.media.pipeline import ImagePipeline
from firstlight.media.policy import FetchPolicy
from firstlight.media.processor import ImageProcessor
from firstlight.media.source import load_image

__all__ = [
    "Artifact",
    "DecodedImage",
    "FetchPolicy",
    "ImageLimits",
    "ImagePipeline",
    "ImageProcessor",
    "MediaItem",
    "Outcome",
    "Prepared",
    "decode_image",
    "load_image",
]
