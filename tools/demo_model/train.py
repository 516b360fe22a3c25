"""Train the demo model: a vision warm-up, then vision and language together.

Both phases run on one thread and resume from ``state.pt`` in the run folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from tools.demo_model.batches import HEADS, IGNORE, Batch, Batches, vision_stream, word_ids
from tools.demo_model.model import HIDDEN, FastModel, VisionOutput, build_model, patchify
from tools.demo_model.questions import KINDS
from tools.demo_model.tokenizer import train_tokenizer
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Qwen3VLForConditionalGeneration


@dataclass
class Settings:
    folder: Path
    phase: str
    seed: int
    steps: int
    decay_from: int
    rate: float
    pictures: int
    questions: int
    helper: float
    pointing: float


@dataclass
class State:
    model: Qwen3VLForConditionalGeneration
    heads: nn.Linear
    step: int = 0
    seen: int = 0
    accuracy: Tensor = field(default_factory=lambda: torch.zeros(len(KINDS) + 1))


EMPHASIS = {"character": 3.0, "same colour": 3.0, "same shape": 3.0}
"""Weights of the labels that are hard to see."""
Losses = tuple[float, float, float]
"""Of the answers, the vision heads and the attention."""


class Scores(NamedTuple):
    """Mean token loss, attention loss, the answers' kinds, and which answers were right."""

    loss: Tensor
    pointing: Tensor
    kinds: Tensor
    right: Tensor


def head_loss(heads: nn.Linear, total: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of the per-token labels, and each head's accuracy where something is drawn."""
    outputs = heads(total.flatten(0, 1)).split(list(HEADS.values()), dim=-1)
    loss = total.new_zeros(())
    scores = []
    for name, output, label in zip(HEADS, outputs, labels.flatten(1), strict=True):
        drawn, empty = label > 0, label == 0
        if bool(drawn.any()):
            emphasis = EMPHASIS.get(name, 1.0)
            loss = loss + emphasis * F.cross_entropy(output[drawn], label[drawn])
        if bool(empty.any()):
            loss = loss + 0.5 * F.cross_entropy(output[empty], label[empty])
        scores.append((output[drawn].argmax(-1) == label[drawn]).float().mean().detach())
    return loss / len(HEADS), torch.stack(scores)


def word_loss(words: list[Tensor], embedding: Tensor, total: Tensor, labels: Tensor) -> Tensor:
    """Pull each drawn token's features towards the embeddings of the words that name it.

    Attention then finds what a question names by comparing like with like.
    """
    flat = F.normalize(total.flatten(0, 1), dim=-1)
    loss = total.new_zeros(())
    for ids, label in zip(words, labels.flatten(1), strict=False):
        drawn = label > 0
        if not bool(drawn.any()):
            continue
        names = F.normalize(embedding[ids], dim=-1)
        loss = loss + F.cross_entropy(12.0 * flat[drawn] @ names.T, label[drawn] - 1)
    return loss / len(words)


def answer_loss(fast: FastModel, batch: Batch, vision: VisionOutput | None) -> Scores:
    """Score every answer of a batch."""
    targets = F.pad(batch.targets[:, 1:], (0, 1), value=IGNORE)
    wanted = (targets.flatten() != IGNORE).nonzero().squeeze(1)
    hidden, pointing = fast.read(
        batch.ids,
        batch.positions,
        batch.mask,
        batch.start,
        vision,
        wanted,
        (batch.pointing, batch.pointed),
    )
    logits, target = fast.logits(hidden), targets.flatten()[wanted]
    loss = F.cross_entropy(logits, target)
    columns = batch.kinds.shape[1]
    answer = batch.segments + columns * torch.arange(len(batch.ids))[:, None]
    wrong = torch.zeros(batch.kinds.numel())
    wrong.index_add_(0, answer.flatten()[wanted], (logits.argmax(-1) != target).float())
    kinds = batch.kinds.flatten()
    return Scores(loss, pointing, kinds[kinds >= 0], (wrong[kinds >= 0] == 0).float())


def build_optimisers(state: State) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside blocks, AdamW for everything else."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in state.model.named_parameters():
        inside = any(part in name for part in (".blocks.", ".layers.", "merger"))
        (matrices if inside and parameter.ndim == 2 else others).append(parameter)
    others += list(state.heads.parameters())
    return [
        torch.optim.Muon(matrices, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, weight_decay=0.01, betas=(0.9, 0.95)),
    ]


def rate_at(settings: Settings, step: int) -> float:
    """Warm up, hold, then fall linearly to zero."""
    rise = min(1.0, (step + 1) / 150)
    fall = 1.0
    if step > settings.decay_from:
        fall = (settings.steps - step) / (settings.steps - settings.decay_from)
    return settings.rate * rise * max(0.0, fall)


def steer(weights: Tensor, accuracy: Tensor) -> None:
    """Kinds that still go wrong are asked more often."""
    weights.copy_(0.12 + (1 - accuracy[: len(KINDS)]).clamp(0, 0.6))


class Trainer:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        model = build_model(settings.seed)
        self.state = State(model, nn.Linear(HIDDEN, sum(HEADS.values())))
        self.optimisers = build_optimisers(self.state)
        self.weights = torch.ones(len(KINDS))
        self.weights.share_memory_()  # type: ignore[no-untyped-call]
        self._stopping = False
        self.tokenizer = train_tokenizer()
        self.words = word_ids(self.tokenizer)
        self._path = settings.folder / "state.pt"
        if self._path.exists():
            self._load()
        self.fast = FastModel(model, torch.bfloat16)

    def _load(self) -> None:
        saved = torch.load(self._path, weights_only=True)
        state = self.state
        state.model.load_state_dict(saved["model"])
        state.heads.load_state_dict(saved["heads"])
        state.seen, state.accuracy = saved["seen"], saved["accuracy"]
        if saved["phase"] == self.settings.phase:
            state.step = saved["step"]
        for optimiser, part in zip(self.optimisers, saved["optimisers"], strict=True):
            optimiser.load_state_dict(part)

    def save(self) -> None:
        state = self.state
        content = {
            "phase": self.settings.phase,
            "model": state.model.state_dict(),
            "heads": state.heads.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": state.step,
            "seen": state.seen,
            "accuracy": state.accuracy,
        }
        torch.save(content, self._path.with_suffix(".new"))
        os.replace(self._path.with_suffix(".new"), self._path)

    def learn(self, batch: Batch) -> tuple[Losses, Tensor]:
        """One optimiser step; returns its losses and the heads' accuracies."""
        vision, helper, scores = None, torch.zeros(()), torch.zeros(len(HEADS))
        if batch.pixels is not None:
            _, height, width, _ = batch.pixels.shape
            vision = self.fast.see(patchify(batch.pixels), height // 16, width // 16)
            helper, scores = head_loss(self.state.heads, vision.total, batch.labels)
            embedding = self.fast.text.embed_tokens.weight
            helper = helper + word_loss(self.words, embedding, vision.total, batch.labels)
        answers = pointing = torch.zeros(())
        if batch.ids.numel():
            answers, pointing, kinds, right = answer_loss(self.fast, batch, vision)
            for kind in set(kinds.tolist()):
                mean = right[kinds == kind].mean()
                self.state.accuracy[kind].lerp_(mean, 0.02)
            steer(self.weights, self.state.accuracy)
        weight = self.settings.helper if batch.ids.numel() else 1.0
        torch.autograd.backward(answers + weight * helper + self.settings.pointing * pointing)
        self._update()
        self.state.seen += 0 if batch.pixels is None else len(batch.pixels)
        return (answers.item(), helper.item(), pointing.item()), scores

    def _update(self) -> None:
        rate = rate_at(self.settings, self.state.step)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
        parameters = [*self.state.model.parameters(), *self.state.heads.parameters()]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        self.state.step += 1

    def stop(self, *_: object) -> None:
        """Save and leave after the current step."""
        self._stopping = True

    def run(self) -> None:
        settings, state = self.settings, self.state
        seed = settings.seed * 1_000_003 + state.seen + (settings.phase == "joint")
        stream = Batches(self.tokenizer, seed, settings.pictures, settings.questions, self.weights)
        source = stream if settings.phase == "joint" else vision_stream(stream)
        loader = DataLoader(source, batch_size=None, num_workers=1, prefetch_factor=6)
        began, seen, saved = time.time(), state.seen, time.time()
        for batch in loader:
            losses, scores = self.learn(batch)
            if state.step % 20 == 0:
                speed = (state.seen - seen) / (time.time() - began)
                self._report(losses, scores, speed)
            if time.time() - saved > 120:
                self.save()
                saved = time.time()
            if state.step >= settings.steps or self._stopping:
                break
        self.save()

    def _report(self, losses: Losses, scores: Tensor, speed: float) -> None:
        state = self.state
        answers, helper, pointing = losses
        heads = " ".join(f"{name}={s:.2f}" for name, s in zip(HEADS, scores.tolist(), strict=True))
        kinds = " ".join(
            f"{kind}={score:.2f}"
            for kind, score in zip([*KINDS, "talk"], state.accuracy.tolist(), strict=True)
        )
        print(
            f"{self.settings.phase} step {state.step} pictures {state.seen} "
            f"rate {rate_at(self.settings, state.step):.5f} speed {speed:.1f}/s "
            f"loss {answers:.3f} heads {helper:.3f} pointing {pointing:.3f} | {heads} | {kinds}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phase", choices=("vision", "joint"), required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument(
        "--decay-from", type=int, default=10**9, help="step at which the rate falls"
    )
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--pictures", type=int, default=32, help="pictures per step")
    parser.add_argument("--questions", type=int, default=6, help="questions per picture")
    parser.add_argument("--helper", type=float, default=0.5, help="weight of the vision heads")
    parser.add_argument("--pointing", type=float, default=0.3, help="weight of the attention loss")
    settings = Settings(**vars(parser.parse_args()))
    torch.set_num_threads(1)
    settings.folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(settings)
    signal.signal(signal.SIGTERM, trainer.stop)
    trainer.run()


if __name__ == "__main__":
    main()
