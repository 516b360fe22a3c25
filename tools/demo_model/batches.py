"""Training batches: pictures of one size, per-token vision labels, and packed questions."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from tools.demo_model.pictures import PITCH, SIZES, Scene, draw, random_scene
from tools.demo_model.pointers import look_at
from tools.demo_model.questions import KINDS, Question, ask
from tools.demo_model.small_talk import SYSTEM_PROMPTS, small_talk
from tools.demo_model.vocabulary import CHARACTERS, COLOURS, SHAPES
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast

IGNORE: Final = -100
HEADS: Final[dict[str, int]] = {
    "shape": len(SHAPES) + 1,
    "character": len(CHARACTERS) + 1,
    "colour": len(COLOURS) + 1,
    "place": 10,
    "order": 7,
    "total": 7,
    "same colour": 6,
    "same shape": 6,
}
"""What the throw-away heads predict at each token that carries a shape or a character."""
TALK: Final = len(KINDS)


@dataclass(frozen=True)
class Batch:
    """One training step's input.

    ``segments`` and ``kinds`` let the trainer score each answer on its own. Each of the
    ``pointing`` tokens (flat indices) should attend to its row of ``pointed``.
    """

    pixels: Tensor | None
    labels: Tensor
    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    segments: Tensor
    kinds: Tensor
    start: int
    pointing: Tensor
    pointed: Tensor


def word_ids(tokenizer: PreTrainedTokenizerFast) -> list[Tensor]:
    """The tokens that name the classes of the first three heads."""
    names = [[f" {shape}" for shape in SHAPES], CHARACTERS, [f" {colour}" for colour in COLOURS]]
    ids = [[tokenizer.encode(name, add_special_tokens=False) for name in group] for group in names]
    return [torch.tensor(group).squeeze(1) for group in ids]


def vision_labels(scene: Scene) -> np.ndarray:
    """``[heads, tokens]``: labels at carrying tokens, 0 on background, ignored at borders."""
    columns, rows = scene.width // PITCH, scene.height // PITCH
    labels = np.zeros((len(HEADS), rows, columns), dtype=np.int64)
    labels[2:] = IGNORE
    for item in scene.items:
        left, right = (int((item.x + side * item.radius) // PITCH) for side in (-1, 1))
        top, bottom = (int((item.y + side * item.radius) // PITCH) for side in (-1, 1))
        labels[:, max(0, top) : bottom + 1, max(0, left) : right + 1] = IGNORE
    for order, item in enumerate(scene.items):
        labels[:, int(item.y // PITCH), int(item.x // PITCH)] = (
            SHAPES.index(item.shape) + 1,
            0,
            tuple(COLOURS).index(item.colour) + 1,
            item.place + 1,
            order + 1,
            len(scene.items),
            sum(other.colour == item.colour for other in scene.items),
            sum(other.shape == item.shape for other in scene.items),
        )
    if scene.label is not None:
        colour = tuple(COLOURS).index(scene.label.colour) + 1
        row = min(rows - 1, int(scene.label.y // PITCH))
        reach = scene.label.size * 0.36
        top, bottom = (int((scene.label.y + side * reach) // PITCH) for side in (-1, 1))
        left, right = (int(scene.label.centres[end] // PITCH) for end in (0, -1))
        labels[:, max(0, top) : bottom + 1, left : right + 1] = IGNORE
        for order, character in enumerate(scene.label.text):
            column = min(columns - 1, int(scene.label.centres[order] // PITCH))
            mark = CHARACTERS.index(character) + 1
            labels[:, row, column] = (
                0,
                mark,
                colour,
                IGNORE,
                order + 1,
                len(scene.label.text),
                IGNORE,
                IGNORE,
            )
    return labels.reshape(len(HEADS), -1)


class Packer:
    """Builds token rows: a shared picture prefix, then questions that cannot see each other."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.picture_token = tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def encode(self, text: str) -> list[int]:
        if text not in self._known:
            if len(self._known) > 50_000:
                self._known.clear()
            self._known[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._known[text]

    def answer(self, question: str, answer: str) -> tuple[list[int], list[int]]:
        asked = self.encode(f"{question}<|im_end|>\n<|im_start|>assistant\n")
        said = self.encode(f"{answer}<|im_end|>")
        return asked + said, [IGNORE] * len(asked) + said


@dataclass
class Row:
    ids: list[int]
    targets: list[int]
    segments: list[int]
    positions: list[tuple[int, int, int]]
    kinds: list[int]
    pointers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def point(self, targets: list[int], steps: list[tuple[int, ...]]) -> None:
        """Note where the answer about to be appended should look."""
        first = next(i for i, target in enumerate(targets) if target != IGNORE) - 1
        room = len(targets) - first - 2
        for step, tokens in enumerate(steps[:room]):
            if tokens:
                self.pointers.append((len(self.ids) + first + step, tokens))

    def extend(self, ids: list[int], targets: list[int], segment: int, at: int) -> int:
        """Append text at position ``at``; the position after it is returned."""
        self.ids += ids
        self.targets += targets
        self.segments += [segment] * len(ids)
        self.positions += [(at + i, at + i, at + i) for i in range(len(ids))]
        return at + len(ids)


def start_row(packer: Packer, before: str, size: tuple[int, int] | None) -> tuple[Row, int]:
    """The prefix up to the end of the picture; also the next position."""
    row = Row([], [], [], [], [])
    ids = packer.encode(before)
    at = row.extend(ids, [IGNORE] * len(ids), 0, 0)
    if size is None:
        return row, at
    columns, rows = size[0] // PITCH, size[1] // PITCH
    count = columns * rows
    row.ids += [packer.picture_token] * count
    row.targets += [IGNORE] * count
    row.segments += [0] * count
    row.positions += [(at, at + y, at + x) for y in range(rows) for x in range(columns)]
    at += max(columns, rows)
    ids = packer.encode("<|vision_end|>")
    return row, row.extend(ids, [IGNORE], 0, at)


def collate(rows: list[Row], pixels: Tensor | None, labels: Tensor, start: int) -> Batch:
    length = -(-max(len(row.ids) for row in rows) // 16) * 16
    count = len(rows)
    ids = torch.zeros(count, length, dtype=torch.long)
    positions = torch.zeros(3, count, length, dtype=torch.long)
    targets = torch.full((count, length), IGNORE)
    segments = torch.full((count, length), -1)
    most = max(len(row.kinds) for row in rows)
    kinds = torch.full((count, most + 1), -1)
    for index, row in enumerate(rows):
        size = len(row.ids)
        ids[index, :size] = torch.tensor(row.ids)
        positions[:, index, :size] = torch.tensor(row.positions).T
        targets[index, :size] = torch.tensor(row.targets)
        segments[index, :size] = torch.tensor(row.segments)
        kinds[index, 1 : len(row.kinds) + 1] = torch.tensor(row.kinds)
    same = segments[:, :, None] == segments[:, None, :]
    mask = (same | (segments == 0)[:, None, :]).tril()
    mask |= torch.eye(length, dtype=torch.bool)
    pointing, pointed = _pointers(rows, length, start)
    return Batch(
        pixels,
        labels,
        ids,
        positions,
        mask[:, None],
        targets,
        segments,
        kinds,
        start,
        pointing,
        pointed,
    )


def _pointers(rows: list[Row], length: int, start: int) -> tuple[Tensor, Tensor]:
    found = [(index, *pointer) for index, row in enumerate(rows) for pointer in row.pointers]
    pointing = torch.tensor([index * length + at for index, at, _ in found], dtype=torch.long)
    pointed = torch.zeros(len(found), length)
    for number, (_, _, tokens) in enumerate(found):
        for token in tokens:
            pointed[number, start + token] = 1 / len(tokens)
    return pointing, pointed


def _settle() -> None:
    """In the worker process: give way to the trainer, and leave signals to it."""
    os.nice(5)
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Batches(IterableDataset[Batch]):
    """An endless, seeded stream of batches; ``weights`` (shared) steers the kinds."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        pictures: int,
        questions: int,
        weights: Tensor,
    ) -> None:
        self.packer = Packer(tokenizer)
        self.seed = seed
        self.pictures = pictures
        self.questions = questions
        self.weights = weights

    def __iter__(self) -> Iterator[Batch]:
        _settle()
        rng = random.Random(self.seed)
        while True:
            style = rng.choices(
                ("plain", "system", "turns", "text first", "talk"), (0.71, 0.08, 0.07, 0.09, 0.05)
            )[0]
            if style == "talk":
                yield self._talk(rng)
            elif style == "text first":
                yield self._text_first(rng)
            else:
                yield self._packed(rng, style)

    def pictures_only(self) -> Iterator[Batch]:
        rng = random.Random(self.seed)
        _settle()
        none = torch.zeros(0, dtype=torch.long)
        while True:
            _, pixels, labels = self._scenes(rng, self.pictures)
            yield Batch(pixels, labels, none, none, none, none, none, none, 0, none, none)

    def _scenes(self, rng: random.Random, count: int) -> tuple[list[Scene], Tensor, Tensor]:
        size = rng.choice(SIZES)
        scenes = [random_scene(rng, size) for _ in range(count)]
        return scenes, *self._render(scenes)

    def _render(self, scenes: list[Scene]) -> tuple[Tensor, Tensor]:
        pixels = torch.from_numpy(np.stack([np.asarray(draw(scene)) for scene in scenes]))
        labels = torch.from_numpy(np.stack([vision_labels(scene) for scene in scenes], axis=1))
        return pixels, labels

    def _draw_questions(self, rng: random.Random, scene: Scene, count: int) -> list[Question]:
        weights = self.weights.tolist()
        found: list[Question] = []
        for _ in range(60):
            question = ask(rng, scene, rng.choices(KINDS, weights)[0])
            if question is not None and question not in found:
                found.append(question)
            if len(found) == count:
                break
        return found

    def _packed(self, rng: random.Random, style: str) -> Batch:
        scenes, pixels, labels = self._scenes(rng, self.pictures)
        size = (scenes[0].width, scenes[0].height)
        system = f"<|im_start|>system\n{rng.choice(SYSTEM_PROMPTS)}<|im_end|>\n"
        before = f"{system if style == 'system' else ''}<|im_start|>user\n<|vision_start|>"
        rows = []
        for scene in scenes:
            row, at = start_row(self.packer, before, size)
            for number, question in enumerate(self._draw_questions(rng, scene, self.questions)):
                ids, targets = self.packer.answer(question.text, question.answer)
                if style == "turns" and number > 0:
                    again = self.packer.encode("\n<|im_start|>user\n")
                    ids, targets = again + ids, [IGNORE] * len(again) + targets
                segment = 0 if style == "turns" else number + 1
                row.point(targets, look_at(scene, question))
                end = row.extend(ids, targets, segment, at)
                at = end if style == "turns" else at
                row.kinds.append(KINDS.index(question.kind))
            if style == "turns":
                row.kinds = []
            rows.append(row)
        return collate(rows, pixels, labels, len(self.packer.encode(before)))

    def _text_first(self, rng: random.Random) -> Batch:
        """The question stands before the picture; questions of one length share a batch."""
        size, length = rng.choice(SIZES), 0
        scenes: list[Scene] = []
        rows: list[Row] = []
        while len(rows) < 2 * self.pictures:
            scene = random_scene(rng, size)
            for question in self._draw_questions(rng, scene, 6):
                before = f"<|im_start|>user\n{question.text}<|vision_start|>"
                length = length or len(self.packer.encode(before))
                if len(self.packer.encode(before)) == length:
                    row, at = start_row(self.packer, before, size)
                    ids, targets = self.packer.answer("", question.answer)
                    row.point(targets, look_at(scene, question))
                    row.extend(ids, targets, 1, at)
                    row.kinds.append(KINDS.index(question.kind))
                    scenes.append(scene)
                    rows.append(row)
                    break
        return collate(rows, *self._render(scenes), length)

    def _talk(self, rng: random.Random) -> Batch:
        rows = []
        for _ in range(self.pictures):
            use_system = rng.random() < 0.2
            system = f"<|im_start|>system\n{rng.choice(SYSTEM_PROMPTS)}<|im_end|>\n"
            row, at = start_row(self.packer, system if use_system else "", None)
            for number in range(4):
                ids, targets = self.packer.answer(*small_talk(rng))
                lead = self.packer.encode("<|im_start|>user\n")
                row.extend(lead + ids, [IGNORE] * len(lead) + targets, number + 1, at)
                row.kinds.append(TALK)
            rows.append(row)
        return collate(rows, None, torch.zeros(0), 0)


class _VisionStream(IterableDataset[Batch]):
    def __init__(self, source: Batches) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Batch]:
        return self._source.pictures_only()


def vision_stream(source: Batches) -> IterableDataset[Batch]:
    """The same pictures without text, for the vision warm-up."""
    return _VisionStream(source)
