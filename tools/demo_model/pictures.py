"""Seeded pictures of coloured shapes and rendered words or numbers."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont
from tools.demo_model.vocabulary import (
    CHARACTERS,
    COLOURS,
    HELD_OUT_WORDS,
    MAX_CHARACTERS,
    MAX_ITEMS,
    SHAPES,
    TRAIN_WORDS,
)

PITCH = 32
"""Distance between two characters: one merged vision token."""
SIZES = (
    (128, 128),
    (160, 160),
    (192, 192),
    (160, 128),
    (128, 160),
    (192, 160),
    (160, 192),
    (192, 128),
    (128, 192),
    (224, 160),
    (224, 128),
)
_SCALE = 2

Rgb = tuple[int, int, int]
Point = tuple[float, float]


@dataclass(frozen=True)
class Item:
    """One shape; ``place`` counts the cells of a 3x3 grid in reading order."""

    shape: str
    colour: str
    rgb: Rgb
    place: int
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Label:
    """One word or number; ``centres`` are the x of its characters, ``y`` that of the line."""

    text: str
    colour: str
    rgb: Rgb
    centres: tuple[float, ...]
    y: float
    size: int
    stroke: int


@dataclass(frozen=True)
class Scene:
    width: int
    height: int
    background: Rgb
    items: tuple[Item, ...]
    label: Label | None


def random_scene(rng: random.Random, size: tuple[int, int], held_out: bool = False) -> Scene:
    """Draw a scene of one of three families: shapes, text, or both."""
    family = rng.choices(("shapes", "text", "both"), (0.55, 0.28, 0.17))[0]
    background = (255, 255, 255)
    if rng.random() < 0.7:
        background = (rng.randint(222, 255), rng.randint(222, 255), rng.randint(222, 255))
    label = None if family == "shapes" else _random_label(rng, size, family == "both", held_out)
    items: tuple[Item, ...] = ()
    if family != "text":
        items = _random_items(rng, size, label)
    return Scene(*size, background, items, label)


def _jitter(rng: random.Random, colour: str, anchors: int = 3) -> Rgb:
    red, green, blue = (
        min(255, max(0, round(rng.gauss(channel, 8))))
        for channel in rng.choice(COLOURS[colour][:anchors])
    )
    return red, green, blue


def _random_text(rng: random.Random, longest: int, held_out: bool) -> str:
    draw = rng.random()
    if draw < 0.45:
        digits = rng.randint(1, min(4, longest))
        first = rng.choice("123456789")
        return first + "".join(rng.choices("0123456789", k=digits - 1))
    if draw < (0.72 if held_out else 0.65):
        words = HELD_OUT_WORDS if held_out else TRAIN_WORDS
        return rng.choice([word for word in words if len(word) <= longest])
    return "".join(rng.choices(CHARACTERS[:26], k=rng.randint(2, longest)))


def _random_label(
    rng: random.Random, size: tuple[int, int], at_edge: bool, held_out: bool
) -> Label:
    colour = rng.choice(tuple(COLOURS))
    if at_edge or rng.random() < 0.6:
        text, centres, y, height = _aligned_text(rng, size, at_edge, held_out)
    else:
        text, centres, y, height = _free_text(rng, size, held_out)
    return Label(text, colour, _jitter(rng, colour, 1), centres, y, height, rng.randint(0, 1))


_Line = tuple[str, tuple[float, ...], float, int]


def _aligned_text(
    rng: random.Random, size: tuple[int, int], at_edge: bool, held_out: bool
) -> _Line:
    """Evenly spaced characters, about one in each token of a row."""
    columns, rows = size[0] // PITCH, size[1] // PITCH
    text = _random_text(rng, min(columns, MAX_CHARACTERS), held_out)
    row = rng.choice((0, rows - 1)) if at_edge else rng.randrange(rows)
    column = rng.randint(0, columns - len(text))
    x = PITCH * (column + 0.5) + rng.uniform(-3, 3)
    y = PITCH * (row + 0.5) + rng.uniform(-3, 3)
    return text, tuple(x + PITCH * i for i in range(len(text))), y, rng.randint(28, 34)


def _free_text(rng: random.Random, size: tuple[int, int], held_out: bool) -> _Line:
    """Larger characters with the font's own spacing, at least one token wide, anywhere.

    Three lines in four lie near the middle of a row of tokens, where they are easier to read.
    """
    height = rng.randint(35, 46)
    text = _random_text(rng, size[0] // 40, held_out)
    advances = [max(PITCH + 1.0, _width(character, height) + 2) for character in text]
    while sum(advances) > size[0] - 4:
        text, advances = text[:-1], advances[:-1]
    x = rng.uniform(2, size[0] - sum(advances) - 2)
    centres = []
    for advance in advances:
        centres.append(x + advance / 2)
        x += advance
    y = rng.uniform(height * 0.5, size[1] - height * 0.5)
    if rng.random() < 0.75:
        y = PITCH * (rng.randrange(size[1] // PITCH) + 0.5) + rng.uniform(-6, 6)
    return text, tuple(centres), y, height


@functools.lru_cache(maxsize=4096)
def _width(character: str, height: int) -> float:
    return float(_font(height).getlength(character))


def _random_items(
    rng: random.Random, size: tuple[int, int], label: Label | None
) -> tuple[Item, ...]:
    cells = list(range(9))
    if label is not None:
        row = 0 if label.y < size[1] / 2 else 2
        cells = [cell for cell in cells if cell // 3 != row]
    most = MAX_ITEMS if label is None else 3
    count = rng.choices(range(1, most + 1), (5, 3, 3, 3, 3)[:most])[0]
    colours, shapes = tuple(COLOURS), tuple(SHAPES)
    if count == 1 and label is None and rng.random() < 0.75:
        return (_large_item(rng, size, rng.choice(shapes), rng.choice(colours)),)
    if rng.random() < 0.35:
        names = list(zip(rng.sample(shapes, count), rng.sample(colours, count), strict=True))
    else:
        if rng.random() < 0.4:
            colours = tuple(rng.sample(colours, 2))
        if rng.random() < 0.4:
            shapes = tuple(rng.sample(shapes, 2))
        names = [(rng.choice(shapes), rng.choice(colours)) for _ in range(count)]
    return tuple(
        _random_item(rng, size, cell, *name)
        for cell, name in zip(sorted(rng.sample(cells, count)), names, strict=True)
    )


def _large_item(rng: random.Random, size: tuple[int, int], shape: str, colour: str) -> Item:
    """A shape alone in the picture: of any size, anywhere."""
    radius = rng.uniform(16, min(size) * 0.46)
    x, y = (rng.uniform(radius + 1, side - radius - 1) for side in size)
    place = 3 * int(3 * y / size[1]) + int(3 * x / size[0])
    return Item(shape, colour, _jitter(rng, colour), place, x, y, radius)


def _random_item(
    rng: random.Random, size: tuple[int, int], cell: int, shape: str, colour: str
) -> Item:
    width, height = size[0] / 3, size[1] / 3
    room = min(width, height) / 2 - 2
    radius = rng.uniform(12, min(room, 27))
    slack_x, slack_y = width / 2 - radius - 1, height / 2 - radius - 1
    return Item(
        shape=shape,
        colour=colour,
        rgb=_jitter(rng, colour),
        place=cell,
        x=(cell % 3 + 0.5) * width + rng.uniform(-slack_x, slack_x),
        y=(cell // 3 + 0.5) * height + rng.uniform(-slack_y, slack_y),
        radius=radius,
    )


@functools.lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def draw(scene: Scene) -> Image.Image:
    """Render a scene at twice its size and reduce it, so that edges are smooth."""
    big = Image.new("RGB", (scene.width * _SCALE, scene.height * _SCALE), scene.background)
    canvas = ImageDraw.Draw(big)
    for item in scene.items:
        draw_shape(canvas, item.shape, item.rgb, item.x, item.y, item.radius, scene.background)
    if scene.label is not None:
        label = scene.label
        for x, character in zip(label.centres, label.text, strict=True):
            canvas.text(
                (x * _SCALE, label.y * _SCALE),
                character,
                fill=label.rgb,
                font=_font(label.size * _SCALE),
                anchor="mm",
                stroke_width=label.stroke,
            )
    return big.reduce(_SCALE)


def draw_shape(
    canvas: ImageDraw.ImageDraw,
    shape: str,
    rgb: Rgb,
    x: float,
    y: float,
    radius: float,
    background: Rgb,
) -> None:
    """Draw one shape on a canvas of twice the picture's size."""
    x, y, radius = x * _SCALE, y * _SCALE, radius * _SCALE
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        canvas.ellipse(box, fill=rgb)
    elif shape == "ring":
        canvas.ellipse(box, fill=rgb)
        inner = radius * 0.55
        canvas.ellipse((x - inner, y - inner, x + inner, y + inner), fill=background)
    elif shape == "square":
        side = radius * 0.88
        canvas.rectangle((x - side, y - side, x + side, y + side), fill=rgb)
    elif shape == "cross":
        arm = radius * 0.32
        canvas.rectangle((x - radius, y - arm, x + radius, y + arm), fill=rgb)
        canvas.rectangle((x - arm, y - radius, x + arm, y + radius), fill=rgb)
    else:
        canvas.polygon(_polygon(shape, x, y, radius), fill=rgb)


def _polygon(shape: str, x: float, y: float, radius: float) -> list[Point]:
    if shape == "triangle":
        return [
            (x, y - radius),
            (x + radius * 0.95, y + radius * 0.8),
            (x - radius * 0.95, y + radius * 0.8),
        ]
    points = []
    for corner in range(10):
        reach = radius if corner % 2 == 0 else radius * 0.42
        angle = math.pi * (corner / 5 - 0.5)
        points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
    return points
