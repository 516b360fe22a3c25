"""Draw the shipped example pictures and record what the model answers to each."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from PIL import Image, ImageDraw, ImageFont
from tools.demo_model.backends import build_backend
from tools.demo_model.evaluate import DEFAULT_MODEL
from tools.demo_model.pictures import PITCH, Item, Label, Scene, draw, draw_shape
from tools.demo_model.vocabulary import COLOURS, PLACES

WHITE: Final = (255, 255, 255)


@dataclass(frozen=True)
class Example:
    file: str
    picture: Image.Image
    question: str
    expected: str
    in_distribution: bool


def _item(size: tuple[int, int], colour: str, shape: str, place: str, radius: float) -> Item:
    cell = PLACES.index(place)
    x, y = (cell % 3 + 0.5) * size[0] / 3, (cell // 3 + 0.5) * size[1] / 3
    return Item(shape, colour, COLOURS[colour][0], cell, x, y, radius)


def _label(text: str, colour: str, x: float, y: float) -> Label:
    """Evenly spaced characters; ``x`` is the centre of the first."""
    centres = tuple(x + PITCH * index for index in range(len(text)))
    return Label(text, colour, COLOURS[colour][0], centres, y, 32, 1)


def familiar() -> list[Example]:
    """Pictures of the kinds the model was trained on."""
    one = Scene(160, 160, WHITE, (Item("circle", "red", (220, 30, 35), 4, 84, 76, 52),), None)
    size = (192, 192)
    names = (
        ("blue", "star", "top left"),
        ("green", "square", "top right"),
        ("orange", "ring", "center"),
        ("purple", "triangle", "bottom"),
    )
    four = Scene(*size, (240, 244, 255), tuple(_item(size, *name, 24) for name in names), None)
    word = Scene(192, 128, (255, 250, 235), (), _label("HELLO", "purple", 48, 48))
    number = Scene(160, 128, WHITE, (), _label("385", "black", 48, 80))
    size = (160, 192)
    pair = (_item(size, "pink", "cross", "left", 22), _item(size, "blue", "circle", "right", 20))
    both = Scene(*size, (236, 250, 236), pair, _label("SHOP", "red", 48, 176))
    return [
        Example("one.png", draw(one), "What is in this picture?", "a red circle", True),
        Example("four.png", draw(four), "How many shapes are there?", "4", True),
        Example("word.png", draw(word), "What does the text say?", "HELLO", True),
        Example("number.png", draw(number), "What number is shown?", "385", True),
        Example("both.png", draw(both), "Where is the blue circle?", "right", True),
    ]


def other_font() -> Image.Image:
    """A number in Pillow's old bitmap font, enlarged without smoothing."""
    small = Image.new("RGB", (40, 40), WHITE)
    font = ImageFont.load_default_imagefont()
    ImageDraw.Draw(small).text((8, 14), "4 7", fill=(30, 80, 200), font=font)
    return small.resize((160, 160), Image.Resampling.NEAREST)


def gradient() -> Image.Image:
    """Two shapes on a background that goes from pale to mid blue."""
    picture = Image.new("RGB", (320, 320))
    canvas = ImageDraw.Draw(picture)
    for row in range(320):
        shade = 250 - row // 3
        canvas.line((0, row, 320, row), fill=(shade, shade, 250))
    draw_shape(canvas, "star", (240, 215, 30), 40, 40, 24, WHITE)
    draw_shape(canvas, "circle", (220, 30, 35), 110, 112, 26, WHITE)
    return picture.reduce(2)


def rotated() -> Image.Image:
    """A square on its corner and a tilted cross."""
    layer = Image.new("RGB", (320, 320), WHITE)
    draw_shape(ImageDraw.Draw(layer), "square", (40, 160, 60), 80, 80, 26, WHITE)
    turned = layer.rotate(40, Image.Resampling.BICUBIC, fillcolor=WHITE)
    return turned.reduce(2)


def dark() -> Image.Image:
    """Yellow rings on a nearly black background."""
    background = (20, 24, 40)
    picture = Image.new("RGB", (320, 320), background)
    canvas = ImageDraw.Draw(picture)
    for x, y in ((40, 40), (118, 46), (80, 120)):
        draw_shape(canvas, "ring", (240, 215, 30), x, y, 22, background)
    return picture.reduce(2)


def house() -> Image.Image:
    """A drawn scene: a house with a roof and a door, grass, and a sun."""
    picture = Image.new("RGB", (384, 384), (200, 228, 255))
    canvas = ImageDraw.Draw(picture)
    canvas.rectangle((0, 300, 384, 384), fill=(90, 180, 80))
    canvas.rectangle((70, 180, 230, 310), fill=(245, 225, 190))
    canvas.rectangle((130, 240, 170, 310), fill=(110, 70, 40))
    canvas.polygon([(50, 180), (150, 90), (250, 180)], fill=(200, 40, 40))
    canvas.ellipse((290, 30, 360, 100), fill=(250, 215, 40))
    return picture.reduce(2)


def unfamiliar() -> list[Example]:
    """Pictures unlike anything in training; the model may well be wrong."""
    return [
        Example("other-font.png", other_font(), "What number is shown?", "47", False),
        Example("gradient.png", gradient(), "Where is the red circle?", "bottom right", False),
        Example("rotated.png", rotated(), "What shape is green?", "square", False),
        Example("dark.png", dark(), "How many rings are there?", "3", False),
        Example("house.png", house(), "What color is the triangle?", "red", False),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--folder", type=Path, default=DEFAULT_MODEL.parent / "pictures")
    parser.add_argument("--backend", choices=("firstlight", "transformers"), default="firstlight")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    backend = build_backend(arguments.backend, arguments.model, False, False)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for example in familiar() + unfamiliar():
        example.picture.save(arguments.folder / example.file, optimize=True)
        actual = backend.answer(example.picture, example.question)
        entries.append(
            {
                "file": example.file,
                "question": example.question,
                "expected": example.expected,
                "actual": actual,
                "in_distribution": example.in_distribution,
            }
        )
        print(f"{example.file}: {example.question} {example.expected!r} got {actual!r}")
    (arguments.folder / "pictures.json").write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    main()
