"""The requests of a load: made before it starts, from its seed alone."""

from __future__ import annotations

import base64
import io
import json
import random
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

from firstlight.bench.settings import LoadSettings
from firstlight.bench.words import Texts
from firstlight.demo.synthetic import QUALITY, synthetic_picture


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, ready to be sent.

    Attributes:
        parts: of its body. Pictures are parts of their own, which requests share.
        max_tokens: of the answer.
        images: in it.
    """

    parts: tuple[bytes, ...] = field(repr=False)
    max_tokens: int
    images: int = 0

    def body(self) -> bytes:
        """JSON."""
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class Workload:
    """All requests of a load, in order.

    Attributes:
        warmup: those that do not count; nothing in them comes again in ``prompts``.
        pictures: in ``prompts``.
        distinct: different ones of them.
    """

    warmup: list[Prompt]
    prompts: list[Prompt]
    pictures: int
    distinct: int


def make_workload(
    settings: LoadSettings, texts: Texts, fields: dict[str, Any], part: str = "load"
) -> Workload:
    """Make a load's requests.

    Args:
        fields: that every request has, e.g. the model.
        part: another name makes other requests of the same settings.
    """
    total = settings.num_requests * settings.images
    distinct = min(settings.distinct_images or total, total)
    # Each picture about as often, in an order that has no pattern.
    order = [i % distinct for i in range(total)]
    random.Random(f"order {part} {settings.seed}").shuffle(order)
    warm = range(settings.warmup * settings.images)
    return Workload(
        warmup=_prompts(settings, texts, fields, f"warm {part}", list(warm), settings.warmup),
        prompts=_prompts(settings, texts, fields, part, order, settings.num_requests),
        pictures=total,
        distinct=distinct,
    )


def _prompts(
    settings: LoadSettings,
    texts: Texts,
    fields: dict[str, Any],
    part: str,
    order: list[int],
    n: int,
) -> list[Prompt]:
    """``n`` requests; the numbers in ``order`` are those of their pictures, one after another."""
    made = cache(_data_url)  # for this list alone
    pictures = iter(order)
    prompts = []
    for i in range(n):
        chance = random.Random(f"{part} {settings.seed} {i}")
        own = []
        for number in islice(pictures, settings.images):
            name = f"{part} {settings.seed} {number}"
            own.append(made(*random.Random(name).choice(settings.image_size), name))
        text = texts.make(settings.input_tokens.draw(chance), chance)
        most = settings.output_tokens.draw(chance)
        prompts.append(_prompt(text, own, fields | {"max_tokens": most}, most))
    return prompts


def _prompt(text: str, pictures: list[bytes], fields: dict[str, Any], max_tokens: int) -> Prompt:
    """The pictures, then the text; the pictures' bytes are not copied."""
    head, tail = json_bytes(fields)[:-1], b',"messages":[{"role":"user","content":['
    parts = [head + tail]
    for url in pictures:
        parts += [b'{"type":"image_url","image_url":{"url":"', url, b'"}},']
    parts.append(json_bytes({"type": "text", "text": text}) + b"]}]}")
    return Prompt(tuple(parts), max_tokens, len(pictures))


def json_bytes(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def _data_url(width: int, height: int, seed: str) -> bytes:
    file = io.BytesIO()
    synthetic_picture(width, height, seed).save(file, "JPEG", quality=QUALITY)
    return b"data:image/jpeg;base64," + base64.b64encode(file.getvalue())
