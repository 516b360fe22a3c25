"""Conversations that exercise an engine: every phase, every bucket, pictures and chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from PIL import Image

Conversation = list[dict[str, Any]]

_WORDS = "How many circles are there, and what colour are they?"


def bucket_batches(
    prefill: Sequence[int], decode: Sequence[int], tokens_of: Callable[[Conversation], int]
) -> Iterator[list[Conversation]]:
    """A batch for each bucket: a prompt that fills it but for a few rows, or that many requests.

    Args:
        tokens_of: length of a conversation's prompt, in tokens.
    """
    words, more = 8, 64
    base = tokens_of(turn("red " * words))
    step = max((tokens_of(turn("red " * more)) - base) / (more - words), 0.1)
    previous = 0
    for bucket in prefill:
        count = words + int((bucket - base) / step)
        prompt = turn("red " * max(count, 1))
        if previous < tokens_of(prompt) <= bucket:
            yield [prompt]
        previous = bucket
    for bucket in decode:
        yield [turn("Hello.")] * bucket


def standard_batches(pictures: bool) -> list[list[Conversation]]:
    """Batches that a healthy model answers without a finding.

    Text alone; a chunked prompt; two requests of unequal length; and, for a model that takes
    pictures, one picture, pictures that a chunk's border may cut, and text beside a picture.

    Args:
        pictures: whether the model takes any.
    """
    text = turn(_WORDS)
    batches = [[text], [turn(" ".join([_WORDS] * 6))], [turn("Hello."), text]]
    if pictures:
        small, large = picture(48, 32), picture(40, 72)
        batches += [
            [turn(small, "What is it?")],
            [turn(" ".join([_WORDS] * 3), small, "or", large, "?")],
            [text, turn(large, "What is it?"), turn("Hello.")],
        ]
    return batches


def turn(*parts: str | Image.Image) -> Conversation:
    """One user turn of texts and pictures."""
    if all(isinstance(part, str) for part in parts):
        return [{"role": "user", "content": " ".join(map(str, parts))}]
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def picture(width: int, height: int) -> Image.Image:
    """A gradient with an edge, so that no two patches are alike."""
    pixels = bytes(
        value
        for y in range(height)
        for x in range(width)
        for value in (255 * x // width, 255 * y // height, 200 if x > y else 40)
    )
    return Image.frombytes("RGB", (width, height), pixels)
