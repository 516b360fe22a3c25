"""transformers' own processors, and pictures whose RGB is known without the code under test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.media.files import encoded
from tests.media.raw_files import RGB, png

_CLASSES = {
    "Qwen2VLForConditionalGeneration": ("qwen2_vl", "Qwen2VLProcessor"),
    "Qwen2_5_VLForConditionalGeneration": ("qwen2_5_vl", "Qwen2_5_VLProcessor"),
    "Qwen3VLForConditionalGeneration": ("qwen3_vl", "Qwen3VLProcessor"),
    "Qwen3VLMoeForConditionalGeneration": ("qwen3_vl", "Qwen3VLProcessor"),
    "LlavaForConditionalGeneration": ("llava", "LlavaProcessor"),
    "LlavaNextForConditionalGeneration": ("llava_next", "LlavaNextProcessor"),
    "LlavaOnevisionForConditionalGeneration": ("llava_onevision", "LlavaOnevisionProcessor"),
    "InternVLForConditionalGeneration": ("internvl", "InternVLProcessor"),
    "Idefics3ForConditionalGeneration": ("idefics3", "Idefics3Processor"),
    "SmolVLMForConditionalGeneration": ("smolvlm", "SmolVLMProcessor"),
    "Mistral3ForConditionalGeneration": ("pixtral", "PixtralProcessor"),
    "Gemma3ForConditionalGeneration": ("gemma3", "Gemma3Processor"),
}


class _NoVideo:
    """In the place of a video processor, whose classes want torchvision; no video is processed."""

    model_input_names: tuple[str, ...] = ()
    valid_kwargs = dict
    merge_size = 2


@lru_cache(maxsize=2)
def transformers_processor(path: Path) -> Any:
    """The checkpoint's processor, its own code unchanged.

    Some classes cannot be made where torchvision or num2words is missing, which they use for videos
    alone; stand-ins take their places.
    """
    from transformers import AutoImageProcessor, AutoTokenizer
    from transformers.processing_utils import VideosKwargs

    config = json.loads((path / "config.json").read_text())
    module, name = _CLASSES[config["architectures"][0]]
    images = AutoImageProcessor.from_pretrained(path, backend="pil")
    if "Pixtral" in type(images).__name__:
        module, name = "pixtral", "PixtralProcessor"
    code = _imported(module)
    _NoVideo.valid_kwargs = VideosKwargs
    own = getattr(code, name)
    lenient = type(
        name, (own,), {"check_argument_for_proper_class": lambda *given: type(given[-1])}
    )
    tokenizer = AutoTokenizer.from_pretrained(path)
    extras = path / "processor_config.json"
    options = json.loads(extras.read_text()) if extras.exists() else {}
    if "video_processor" in signature(own.__init__).parameters:
        options["video_processor"] = _NoVideo()
    return lenient(
        image_processor=images,
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
        **options,
    )


def _imported(module: str) -> Any:
    name = f"transformers.models.{module}"
    if module == "pixtral":
        pil = import_module(f"{name}.image_processing_pil_{module}")
        sys.modules.setdefault(f"{name}.image_processing_{module}", pil)
    code: Any = import_module(f"{name}.processing_{module}")
    if module == "smolvlm" and not code.num2words:
        code.num2words = str
    return code


# -- pictures ----------------------------------------------------------------------------------

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Sample:
    """A file and the picture that it means, worked out without the code under test."""

    name: str
    data: bytes
    plain: Image.Image


def _rgb(rng: np.random.Generator, width: int, height: int) -> Pixels:
    """A smooth picture with noise on it."""
    x, y = np.meshgrid(np.linspace(0, 200, width), np.linspace(0, 200, height))
    base = np.stack([x, y, 200 - x], -1) + rng.integers(0, 56, (height, width, 3))
    return base.astype(np.uint8)


def _over_white(colour: Pixels, alpha: Pixels) -> Pixels:
    share = alpha[..., None].astype(np.int64)
    mixed = colour.astype(np.int64) * share + 255 * (255 - share)
    return ((mixed + 127) // 255).astype(np.uint8)


def _grey(values: Pixels) -> Pixels:
    return np.dstack([values] * 3)


def _bit(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    bits = rgb[..., 0] > 100
    return encoded(Image.fromarray(bits)), _grey((bits * 255).astype(np.uint8))


def _l(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    return encoded(Image.fromarray(rgb[..., 1].copy()), "BMP"), _grey(rgb[..., 1])


def _la(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    grey, alpha = rgb[..., 0], rgb[..., 2]
    data = encoded(Image.fromarray(np.dstack([grey, alpha])))
    return data, _over_white(_grey(grey), alpha)


def _indexed(rgb: Pixels, rng: np.random.Generator) -> tuple[Image.Image, Pixels, Pixels]:
    palette = rng.integers(0, 256, (16, 3)).astype(np.uint8)
    index = (rgb[..., 0] // 16).astype(np.uint8)
    image = Image.fromarray(index, "P")
    image.putpalette(palette.tobytes())
    return image, index, palette[index]


def _p(rgb: Pixels, rng: np.random.Generator) -> tuple[bytes, Pixels]:
    image, _, colours = _indexed(rgb, rng)
    return encoded(image, "GIF"), colours


def _p_alpha(rgb: Pixels, rng: np.random.Generator) -> tuple[bytes, Pixels]:
    image, index, colours = _indexed(rgb, rng)
    alphas = rng.integers(0, 256, 16).astype(np.uint8)
    return encoded(image, transparency=alphas.tobytes()), _over_white(colours, alphas[index])


def _rgb_file(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    return encoded(Image.fromarray(rgb), "WEBP", lossless=True), rgb


def _rgba(rgb: Pixels, rng: np.random.Generator) -> tuple[bytes, Pixels]:
    alpha = rng.integers(0, 256, rgb.shape[:2]).astype(np.uint8)
    return encoded(Image.fromarray(np.dstack([rgb, alpha]))), _over_white(rgb, alpha)


def _cmyk(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    black = np.zeros(rgb.shape[:2], np.uint8)
    inks = Image.fromarray(np.dstack([255 - rgb, black]), "CMYK")
    return encoded(inks, "TIFF", compression="tiff_lzw"), rgb


def _i16(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    deep = rgb[..., 0].astype(np.uint16) * 257
    return encoded(Image.fromarray(deep)), _grey(rgb[..., 0])


def _f(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    values = rgb[..., 2].copy()
    values.flat[0] = 255  # floats end at 1 or at 255, whichever none exceeds
    return encoded(Image.fromarray(values.astype(np.float32)), "TIFF"), _grey(values)


def _rgb16(rgb: Pixels, _: np.random.Generator) -> tuple[bytes, Pixels]:
    return png(rgb.astype(np.uint16) * 257, 16, RGB), rgb


def _turned(rgb: Pixels, rng: np.random.Generator) -> tuple[bytes, Pixels]:
    exif = Image.Exif()
    exif[0x0112] = orientation = int(rng.integers(2, 9))
    seen = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a),
    }[orientation](rgb)
    return encoded(Image.fromarray(rgb), exif=exif), np.ascontiguousarray(seen)


MODES: dict[str, Callable[[Pixels, np.random.Generator], tuple[bytes, Pixels]]] = {
    "1": _bit,
    "L": _l,
    "LA": _la,
    "P": _p,
    "P with alpha": _p_alpha,
    "RGB": _rgb_file,
    "RGBA": _rgba,
    "CMYK": _cmyk,
    "I;16": _i16,
    "F": _f,
    "RGB of 16 bits": _rgb16,
    "turned": _turned,
}

_SIZES = [
    *((48, 32), (1, 1), (3, 22), (22, 3), (1, 2), (97, 61), (2, 1), (26, 28), (17, 90)),
    *((33, 31), (5, 7), (200, 40), (200, 1), (1, 200), (400, 2), (2, 399), (3, 3), (64, 64)),
    *((1, 57), (57, 1), (16, 16), (15, 17), (128, 8), (500, 19), (31, 256)),
]


def sample(number: int) -> Sample:
    """The picture of a number: 12 modes in turn, every one in all sizes."""
    rng = np.random.default_rng(number)
    mode = list(MODES)[number % len(MODES)]
    width, height = _SIZES[number % len(_SIZES)]
    data, plain = MODES[mode](_rgb(rng, width, height), rng)
    return Sample(f"{number}: {mode} {width} x {height}", data, Image.fromarray(plain))
