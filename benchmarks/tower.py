"""What a vision tower takes on one picture: transformers' modules, ours, and a graph of its size.

``scripts/bench tower``. Times are those of the processor on one thread, the least of some rounds in
turns, so that other work on the machine changes them little.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.machine import about
from benchmarks.peers.vision_model import build_vision_model
from firstlight.config import EngineConfig
from firstlight.demo import model_path
from firstlight.engine.encoder_graphs import open_encoder_graphs
from firstlight.graphs import TapeBackend
from firstlight.media import decode_image
from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.fuse import Kit, fuse_model
from firstlight.models.loading import load_model
from firstlight.native import Kernels, NativeLowering, open_kernels

FIRST: Final = "transformers' modules"
"""What the others are compared with."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One way to encode the picture.

    Attributes:
        patches: of the picture.
        ratio: to transformers' modules.
    """

    model: str
    way: str
    patches: int
    ms: float
    ratio: float


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="scripts/bench tower", description=__doc__)
    parser.add_argument("--side", type=int, default=448, help="of the picture, in pixels")
    parser.add_argument("--rounds", type=int, default=5, help="the least of so many is taken")
    parser.add_argument("--model", type=Path, help="a checkpoint instead of the two that are made")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[Encoded] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _models(options.model, Path(folder)).items():
            rows += compared(name, path, options.side, options.rounds)
    _show(rows)
    if options.json is not None:
        content = {"about": about(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _models(given: Path | None, folder: Path) -> Mapping[str, Path]:
    if given is not None:
        return {given.name: given}
    build_vision_model(folder)
    return {"bundled": model_path(), "random Qwen3-VL, 0.62B": folder}


def compared(name: str, path: Path, side: int, rounds: int) -> list[Encoded]:
    """The picture by each way, in turns, in bfloat16."""
    kernels = open_kernels(EngineConfig().cache_dir)
    noise = random.Random(side).randbytes(3 * side * side)
    picture = Image.frombytes("RGB", (side, side), noise)
    adapters = {FIRST: _adapter(path, None)[0]}
    adapters["torch's kernels"] = _adapter(path, Kit())[0]
    compiled, processor = _adapter(path, Kit(kernels))
    adapters["compiled kernels"] = compiled
    artifact = processor.artifact(decode_image(picture))
    ways: dict[str, Callable[[], object]] = {
        way: _encoding(adapter, artifact) for way, adapter in adapters.items()
    }
    ways |= _graph(compiled, kernels, artifact)
    best = _least(ways, rounds)
    grid = artifact.tensors.get("image_grid_thw")
    patches = 0 if grid is None else int(grid.prod())
    return [
        Encoded(name, way, patches, round(s * 1e3, 3), round(s / best[FIRST], 3))
        for way, s in best.items()
    ]


def _adapter(path: Path, kit: Kit | None) -> tuple[Adapter, Any]:
    loaded = load_model(path, dtype="bfloat16")
    if kit is not None:
        fuse_model(loaded.adapter, kit)
    return loaded.adapter, loaded.image_processor


def _encoding(rows: Any, artifact: Artifact) -> Callable[[], object]:
    def encode() -> object:
        with torch.no_grad():
            return rows.media_rows([artifact])

    return encode


def _graph(
    adapter: Adapter, kernels: Kernels, artifact: Artifact
) -> dict[str, Callable[[], object]]:
    """A graph of just this picture's size, so that nothing is padding."""
    tower = adapter.tower()
    load = tower if isinstance(tower, str) else tower.load(artifact)
    if isinstance(load, str):
        return {}
    config = EngineConfig(
        encoder_graphs="on", encoder_budgets=(load.units,), padding_cost="free", proof="off"
    )
    graphs = open_encoder_graphs(config, adapter, TapeBackend(lowering=NativeLowering(kernels)))
    return (
        {} if graphs.rows is None else {"compiled, from a graph": _encoding(graphs.rows, artifact)}
    )


def _least(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the processor; the first round, which makes what is made once, does not count."""
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for way, encode in ways.items():
            began = time.thread_time()
            encode()
            took = time.thread_time() - began
            if number:
                best[way] = min(took, best.get(way, took))
    return best


def _show(rows: Sequence[Encoded]) -> None:
    table = Table(title="One picture through the tower, one thread")
    for column in ("model", "way", "patches", "ms", "ratio"):
        table.add_column(column, justify="left" if column in ("model", "way") else "right")
    for row in rows:
        table.add_row(row.model, row.way, str(row.patches), f"{row.ms:g}", f"{row.ratio:.2f}")
    Console().print(table)
