"""The short start of a process that is firstlight's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_SEEN = """
import gc, json, sys
from firstlight.cli.quick_start import quick_start
with quick_start():
    inside = gc.isenabled()
    {inside}
import torch
print(json.dumps({{
    "inside": inside,
    "after": gc.isenabled(),
    "frozen": gc.get_freeze_count(),
    "modules": [n for n in {names!r} if n in sys.modules],
    "distributed": torch.distributed.is_available(),
    "real": {real},
}}))
"""
HEAVY = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torch.onnx")


def seen(inside: str, real: str = "None") -> dict[str, object]:
    """What a fresh process holds after a quick start with ``inside`` in it."""
    script = _SEEN.format(inside=inside, names=HEAVY, real=real)
    found: dict[str, object] = json.loads(ran(script).splitlines()[-1])
    return found


def ran(script: str) -> str:
    """What a fresh process prints."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def start() -> dict[str, object]:
    """The start of a command that serves a model."""
    return seen("from transformers import Qwen3VLForConditionalGeneration")


def test_modeling_code_is_imported_without_the_compiler_and_distributed_tensors(
    start: dict[str, object],
) -> None:
    assert start["modules"] == []


def test_the_collector_rests_within_and_leaves_alone_what_was_made(
    start: dict[str, object],
) -> None:
    assert (start["inside"], start["after"]) == (False, True)
    assert isinstance(start["frozen"], int)
    assert start["frozen"] > 10_000


def test_torch_says_afterwards_again_that_it_is_distributed(start: dict[str, object]) -> None:
    assert start["distributed"] is True


@pytest.mark.slow
def test_the_mask_helper_that_was_stood_in_for_is_the_compilers_own_when_it_is_used() -> None:
    found = seen(
        "import transformers.masking_utils as masks",
        "type(masks.TransformGetItemToIndex()).__module__",
    )
    assert found["real"] == "torch._dynamo._trace_wrapped_higher_order_op"


@pytest.mark.slow
def test_what_no_stand_in_has_is_taken_from_the_real_compiler() -> None:
    found = seen("import torch; made = torch._dynamo.is_compiling", "made()")
    assert found["real"] is False
    assert "torch._dynamo" in str(found["modules"])


def test_where_a_checkpoints_code_runs_nothing_is_stood_in_for() -> None:
    script = (
        "import sys\n"
        "from firstlight.cli.quick_start import quick_start\n"
        "with quick_start(stand_ins=False):\n"
        "    import torch\n"
        "    assert 'torch._dynamo' not in sys.modules\n"
        "    assert torch.distributed.is_available()\n"
    )
    ran(script)
