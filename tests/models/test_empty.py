"""Models are made empty without imports and numbers that nobody needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from firstlight.models.empty import WithoutDraws
from firstlight.models.weights import _read, read_architecture
from tests.conftest import TinyCheckpoint

NOT_NEEDED = (
    "av", "mpmath", "pandas", "scipy", "sklearn", "sympy", "torchaudio", "torchvision",
    "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torch.onnx",
)  # fmt: skip

_LOADED = """
import sys
from firstlight.cli.quick_start import quick_start
with quick_start():
    from firstlight.engine.llm import LLM
    from firstlight.models.loading import load_model
    load_model(sys.argv[1], dtype="bfloat16")
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "qwen3_vl"])
def test_a_loaded_model_has_imported_nothing_that_it_does_not_call(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _LOADED, str(tiny_checkpoint(family)), *NOT_NEEDED]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_draws_leave_meta_tensors_alone() -> None:
    with WithoutDraws(), torch.device("meta"):
        made = nn.Embedding(4, 3)
    assert made.weight.is_meta


def test_tensors_that_are_there_are_drawn_as_ever() -> None:
    with WithoutDraws():
        assert nn.init.constant_(torch.empty(3), 2.0).tolist() == [2.0, 2.0, 2.0]
        assert nn.init.normal_(tensor=torch.zeros(64)).any()
        assert torch.arange(3).tolist() == [0, 1, 2]


def test_counts_are_there_while_the_rest_is_not() -> None:
    with WithoutDraws(), torch.device("meta"):
        counts = 10.0 ** (torch.arange(0, 4, 2, dtype=torch.int64).float() / 2)
        assert torch.ones(3).is_meta
    assert counts.tolist() == [1.0, 10.0]


def test_a_module_that_computes_with_both_is_made_the_usual_way() -> None:
    class Mixed:
        @classmethod
        def from_pretrained(cls, folder: Path, **options: Any) -> Any:
            with torch.device("meta"):
                return torch.arange(3) + torch.ones(3), options

    made, options = _read(Mixed, Path(), dtype="float32")
    assert made.is_meta
    assert options == {"dtype": "float32"}


def test_weights_and_buffers_are_those_of_the_usual_way(tiny_checkpoint: TinyCheckpoint) -> None:
    for family in ("qwen3", "gemma3", "qwen3_vl"):
        path = tiny_checkpoint(family)
        cls = getattr(transformers, read_architecture(path))
        found, expected = _read(cls, path), cls.from_pretrained(path)
        ours = dict(found.named_parameters()) | dict(found.named_buffers())
        theirs = dict(expected.named_parameters()) | dict(expected.named_buffers())
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), family
