"""Weights mapped from files: what was replaced is no longer resident, and nothing is lost."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from firstlight.engine.mapped_weights import MappedWeights

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and madvise(2) are Linux's")

ROWS, COLUMNS = 512, 1024
N_BYTES = ROWS * COLUMNS * 4
SOME = 64 << 10


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """Two linear layers whose weights are mapped from files of their own, all of it read."""
    made = nn.Sequential(nn.Linear(COLUMNS, ROWS, bias=False), nn.Linear(COLUMNS, ROWS, bias=False))
    for name, layer in zip("ab", made, strict=True):
        path = tmp_path / f"{name}.bin"
        torch.ones(ROWS, COLUMNS).numpy().tofile(path)
        mapped = torch.from_file(str(path), shared=False, size=ROWS * COLUMNS)
        layer.weight = nn.Parameter(mapped.view(ROWS, COLUMNS), requires_grad=False)
        assert layer.weight.sum() == ROWS * COLUMNS
    return made


def resident(tmp_path: Path, name: str) -> int:
    """Bytes of a file that are resident in this process."""
    parts = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.M)
    sizes = [re.search(r"^Rss: +(\d+)", p, re.M) for p in parts if f"{tmp_path}/{name}.bin" in p]
    return sum(int(found[1]) * 1024 for found in sizes if found)


def test_a_replaced_weight_leaves_memory_while_a_view_of_it_is_held(
    model: Any, tmp_path: Path
) -> None:
    mapped = MappedWeights(model)
    assert mapped.nbytes == 2 * N_BYTES
    view = model[0].weight.detach()
    assert resident(tmp_path, "a") == N_BYTES
    model[0] = nn.Identity()
    mapped.give_back()
    assert resident(tmp_path, "a") <= SOME
    assert mapped.nbytes == N_BYTES
    assert view.sum() == ROWS * COLUMNS


def test_a_weight_that_is_there_stays_resident(model: Any, tmp_path: Path) -> None:
    mapped = MappedWeights(model)
    model[0] = nn.Identity()
    mapped.give_back()
    assert resident(tmp_path, "b") == N_BYTES


def test_a_weight_that_another_layer_shares_stays(model: Any, tmp_path: Path) -> None:
    model[1].weight = nn.Parameter(model[0].weight.detach(), requires_grad=False)
    mapped = MappedWeights(model)
    model[0] = nn.Identity()
    mapped.give_back()
    assert resident(tmp_path, "a") == N_BYTES


def test_pages_that_were_written_to_keep_what_was_written(model: Any) -> None:
    mapped = MappedWeights(model)
    view = model[0].weight.detach()
    view[100] = 7
    model[0] = nn.Identity()
    mapped.give_back()
    assert view[100].sum() == 7 * COLUMNS


def test_weights_in_memory_of_their_own_are_none_of_its_business() -> None:
    layer = nn.Linear(COLUMNS, ROWS)
    model = nn.Sequential(layer)
    mapped = MappedWeights(model)
    assert mapped.nbytes == 0
    view = layer.weight.detach()
    del layer
    expected = view.clone()
    model[0] = nn.Identity()
    mapped.give_back()
    assert torch.equal(view, expected)
