"""Questions about a scene, their answers, and turns that need no picture."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tools.demo_model.pictures import Item, Scene
from tools.demo_model.vocabulary import COLOURS, PLACES, SHAPES, with_article


@dataclass(frozen=True)
class Question:
    kind: str
    text: str
    answer: str
    subject: str


PHRASINGS: Final[dict[str, tuple[str, ...]]] = {
    "colour of a shape": (
        "What color is the {0}?",
        "What colour is the {0}?",
        "Which color does the {0} have?",
        "What is the color of the {0}?",
        "Tell me the color of the {0}.",
    ),
    "colour of the text": (
        "What color is the text?",
        "What colour is the text?",
        "What is the color of the text?",
        "Which color is the text written in?",
        "What color are the letters?",
    ),
    "shape": (
        "What shape is {0}?",
        "Which shape is {0}?",
        "What is the {0} shape?",
        "Name the {0} shape.",
        "What is {0} in the picture?",
    ),
    "count": (
        "How many shapes are there?",
        "How many shapes are in the picture?",
        "How many shapes do you see?",
        "Count the shapes.",
        "What is the number of shapes?",
    ),
    "count by colour": (
        "How many {0} shapes are there?",
        "How many {0} shapes are in the picture?",
        "How many shapes are {0}?",
        "Count the {0} shapes.",
    ),
    "count by shape": (
        "How many {2} are there?",
        "How many {2} are in the picture?",
        "How many {2} do you see?",
        "Count the {2}.",
    ),
    "position": (
        "Where is the {0}?",
        "Where in the picture is the {0}?",
        "Where is the {0} located?",
        "What is the position of the {0}?",
        "Where do you see the {0}?",
    ),
    "what is at a place": (
        "What is at the {0}?",
        "What is in the {0}?",
        "What do you see at the {0}?",
        "What is located at the {0}?",
        "Which shape is at the {0}?",
    ),
    "exists": (
        "Is there {1}?",
        "Is there {1} in the picture?",
        "Do you see {1}?",
        "Can you see {1}?",
        "Does the picture show {1}?",
    ),
    "read a word": (
        "What does the text say?",
        "Read the text.",
        "What is written in the picture?",
        "What word is shown?",
        "Which word do you see?",
    ),
    "read a number": (
        "What number is shown?",
        "Read the number.",
        "What is the number in the picture?",
        "Which number do you see?",
        "What does the text say?",
        "What is written in the picture?",
    ),
    "describe": (
        "Describe the picture.",
        "Describe this image.",
        "What is in this picture?",
        "What do you see?",
        "What does the image show?",
        "What is in this image?",
    ),
}
KINDS: Final = tuple(PHRASINGS)


def ask(rng: random.Random, scene: Scene, kind: str) -> Question | None:
    """A question of one kind, or None where the scene does not allow it."""
    drawn = _MAKERS[kind](rng, scene)
    if drawn is None:
        return None
    subject, answer = drawn
    return Question(kind, fill(rng.choice(PHRASINGS[kind]), subject), answer, subject)


def fill(phrasing: str, subject: str) -> str:
    """Put a subject into a phrasing: as it is, with an article, or in the plural."""
    article = with_article(subject) if subject else ""
    plural = f"{subject}es" if subject.endswith("s") else f"{subject}s"
    return phrasing.format(subject, article, plural)


_Draw = tuple[str, str] | None


def _unique(scene: Scene, key: Callable[[Item], str]) -> list[Item]:
    keys = [key(item) for item in scene.items]
    return [item for item in scene.items if keys.count(key(item)) == 1]


def _shape_of(item: Item) -> str:
    return item.shape


def _colour_of(item: Item) -> str:
    return item.colour


def _name_of(item: Item) -> str:
    return f"{item.colour} {item.shape}"


def _colour_of_shape(rng: random.Random, scene: Scene) -> _Draw:
    candidates = _unique(scene, _shape_of)
    if not candidates:
        return None
    item = rng.choice(candidates)
    name = "shape" if len(scene.items) == 1 and rng.random() < 0.5 else item.shape
    return name, item.colour


def _colour_of_text(rng: random.Random, scene: Scene) -> _Draw:
    return None if scene.label is None else ("", scene.label.colour)


def _shape(rng: random.Random, scene: Scene) -> _Draw:
    candidates = _unique(scene, _colour_of)
    if not candidates:
        return None
    item = rng.choice(candidates)
    return item.colour, item.shape


def _count(rng: random.Random, scene: Scene) -> _Draw:
    if not scene.items and rng.random() < 0.7:
        return None
    return "", str(len(scene.items))


def _count_by(
    rng: random.Random, scene: Scene, names: tuple[str, ...], key: Callable[[Item], str]
) -> _Draw:
    present = [key(item) for item in scene.items]
    if not present:
        return None
    repeated = [name for name in present if present.count(name) > 1]
    draw = rng.random()
    pool = names if draw < 0.15 else repeated if draw < 0.6 and repeated else present
    name = rng.choice(pool)
    return name, str(present.count(name))


def _count_by_colour(rng: random.Random, scene: Scene) -> _Draw:
    return _count_by(rng, scene, tuple(COLOURS), _colour_of)


def _count_by_shape(rng: random.Random, scene: Scene) -> _Draw:
    return _count_by(rng, scene, SHAPES, _shape_of)


def _position(rng: random.Random, scene: Scene) -> _Draw:
    by_name = _unique(scene, _name_of)
    if not by_name:
        return None
    item = rng.choice(by_name)
    name = _name_of(item)
    if item in _unique(scene, _shape_of) and rng.random() < 0.4:
        name = item.shape
    return name, PLACES[item.place]


def _at_place(rng: random.Random, scene: Scene) -> _Draw:
    if not scene.items:
        return None
    taken = {item.place: item for item in scene.items}
    place = rng.choice(tuple(taken)) if rng.random() < 0.8 else rng.randrange(9)
    if scene.label is not None and place not in taken:
        return None
    item = taken.get(place)
    return PLACES[place], "nothing" if item is None else _name_of(item)


def _exists(rng: random.Random, scene: Scene) -> _Draw:
    if not scene.items:
        return None
    names = {_name_of(item) for item in scene.items}
    if rng.random() < 0.5:
        return rng.choice(sorted(names)), "yes"
    colour, shape = rng.choice(tuple(COLOURS)), rng.choice(SHAPES)
    if rng.random() < 0.5:
        colour = rng.choice(scene.items).colour
    elif rng.random() < 0.5:
        shape = rng.choice(scene.items).shape
    name = f"{colour} {shape}"
    return name, "yes" if name in names else "no"


def _read_word(rng: random.Random, scene: Scene) -> _Draw:
    if scene.label is None or scene.label.text.isdigit():
        return None
    return "", scene.label.text


def _read_number(rng: random.Random, scene: Scene) -> _Draw:
    if scene.label is None or not scene.label.text.isdigit():
        return None
    return "", scene.label.text


def _describe(rng: random.Random, scene: Scene) -> _Draw:
    parts = [with_article(_name_of(item)) for item in scene.items]
    if scene.label is not None:
        what = "number" if scene.label.text.isdigit() else "text"
        parts.append(f"{scene.label.colour} {what} {scene.label.text}")
    return "", ", ".join(parts)


_MAKERS: Final[dict[str, Callable[[random.Random, Scene], _Draw]]] = {
    "colour of a shape": _colour_of_shape,
    "colour of the text": _colour_of_text,
    "shape": _shape,
    "count": _count,
    "count by colour": _count_by_colour,
    "count by shape": _count_by_shape,
    "position": _position,
    "what is at a place": _at_place,
    "exists": _exists,
    "read a word": _read_word,
    "read a number": _read_number,
    "describe": _describe,
}
