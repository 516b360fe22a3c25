"""Exact match per kind of question on held-out pictures, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import torch
from PIL import Image
from tools.demo_model.backends import Backend, build_backend
from tools.demo_model.pictures import SIZES, draw, random_scene
from tools.demo_model.questions import KINDS, Question, ask

HELD_OUT_SEED: Final = 20_251_129
DEFAULT_MODEL: Final = Path(__file__).parents[2] / "src/firstlight/demo/model"


def held_out(seed: int, pictures: int, questions: int) -> list[tuple[Image.Image, list[Question]]]:
    """Pictures from a seed of their own, with the kinds asked about equally often."""
    rng = random.Random(seed)
    asked: Counter[str] = Counter()
    chosen = []
    for _ in range(pictures):
        scene = random_scene(rng, rng.choice(SIZES), held_out=True)
        possible = [question for kind in KINDS if (question := ask(rng, scene, kind)) is not None]
        possible.sort(key=lambda question: asked[question.kind])
        picked = possible[:questions]
        asked.update(question.kind for question in picked)
        chosen.append((draw(scene), picked))
    return chosen


def score(
    backend: Backend, cases: list[tuple[Image.Image, list[Question]]], show: int
) -> dict[str, list[bool]]:
    """Which answers matched exactly, per kind; prints the first ``show`` mistakes."""
    results: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for picture, questions in cases:
        for question in questions:
            answer = backend.answer(picture, question.text)
            right = answer.strip() == question.answer
            results[question.kind].append(right)
            if not right and show > 0:
                show -= 1
                print(f"{question.kind}: {question.text!r} {question.answer!r} got {answer!r}")
    return results


def summarise(results: dict[str, list[bool]]) -> dict[str, object]:
    kinds = {
        kind: {"right": sum(right), "asked": len(right), "exact": sum(right) / len(right)}
        for kind, right in results.items()
        if right
    }
    everything = [right for kind in results.values() for right in kind]
    return {
        "kinds": kinds,
        "asked": len(everything),
        "exact": sum(everything) / len(everything),
        "worst": min(kind["exact"] for kind in kinds.values()),
    }


def print_table(results: dict[str, list[bool]]) -> None:
    print(f"| {'kind':22} | right | asked | exact match |")
    print(f"|{'-' * 24}|------:|------:|------------:|")
    rows = [*results.items(), ("all", [right for kind in results.values() for right in kind])]
    for kind, right in rows:
        if right:
            exact = f"{sum(right) / len(right):.3f}"
            print(f"| {kind:22} | {sum(right):5} | {len(right):5} | {exact:>11} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--backend", choices=("firstlight", "transformers"), default="firstlight")
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=3, help="questions per picture")
    parser.add_argument("--seed", type=int, default=HELD_OUT_SEED)
    parser.add_argument("--zero-deepstack", action="store_true", help="transformers only")
    parser.add_argument("--float32", action="store_true", help="transformers only")
    parser.add_argument("--show", type=int, default=0, help="mistakes to print")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    backend = build_backend(
        arguments.backend, arguments.model, arguments.zero_deepstack, arguments.float32
    )
    cases = held_out(arguments.seed, arguments.pictures, arguments.questions)
    began = time.perf_counter()
    results = score(backend, cases, arguments.show)
    print_table(results)
    summary = summarise(results) | {
        "backend": arguments.backend,
        "deepstack": not arguments.zero_deepstack,
        "pictures": arguments.pictures,
        "seed": arguments.seed,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(summary))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
