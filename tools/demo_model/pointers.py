"""Where attention should look while an answer is written: a throw-away training signal."""

from __future__ import annotations

from typing import Final

from tools.demo_model.pictures import PITCH, Item, Scene
from tools.demo_model.questions import Question
from tools.demo_model.vocabulary import PLACES

_STEPS: Final = 2


def item_token(scene: Scene, item: Item) -> int:
    """The merged vision token that holds a shape's centre."""
    return int(item.y // PITCH) * (scene.width // PITCH) + int(item.x // PITCH)


def character_tokens(scene: Scene) -> list[int]:
    """The merged vision token that holds each character's centre."""
    if scene.label is None:
        return []
    columns, rows = scene.width // PITCH, scene.height // PITCH
    row = min(rows - 1, int(scene.label.y // PITCH))
    return [row * columns + min(columns - 1, int(x // PITCH)) for x in scene.label.centres]


def _means(subject: str, item: Item) -> bool:
    names = (item.shape, item.colour, f"{item.colour} {item.shape}", PLACES[item.place], "shape")
    return subject in names


def look_at(scene: Scene, question: Question) -> list[tuple[int, ...]]:
    """For each token of the answer, the vision tokens it is about (possibly none)."""
    if question.kind.startswith("read"):
        return [(token,) for token in character_tokens(scene)]
    if question.kind == "describe":
        steps: list[tuple[int, ...]] = []
        for item in scene.items:
            steps += [(item_token(scene, item),)] * 3 + [()]
        return steps
    meant = [item_token(scene, item) for item in scene.items if _means(question.subject, item)]
    return [tuple(meant)] * _STEPS
