"""Host values on their way to a device."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from firstlight.transfer import fill_from, on_device, to_device, to_host
from tests.host_reads import HostReads

CPU = torch.device("cpu")
PACKAGE = Path(__file__).parent.parent / "src" / "firstlight"
IN_A_STEP = (
    "engine/step.py",
    "engine/merge.py",
    "engine/token_ids.py",
    "engine/placement.py",
    "graphs/registry.py",
    "graphs/runner.py",
    "sampling/draws.py",
    "sampling/filters.py",
    "sampling/grammar.py",
    "sampling/logprobs.py",
    "sampling/penalties.py",
    "sampling/sampler.py",
)
"""Modules that every step runs, between the scheduler and the tokens."""


def test_a_tensor_that_is_there_is_not_copied() -> None:
    tensor = torch.arange(3)
    assert to_device(tensor, CPU) is tensor


def test_numbers_keep_their_values_and_get_the_dtype() -> None:
    assert torch.equal(on_device([1, 2], torch.int64, CPU), torch.tensor([1, 2]))
    assert on_device([], torch.float32, CPU).shape == (0,)


def test_a_target_takes_the_values() -> None:
    target = torch.zeros(2, 3)
    fill_from(target[1], torch.ones(3))
    assert target.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_another_device_takes_a_copy() -> None:
    """`meta` is another device that a CPU has."""
    assert to_device(torch.ones(3), torch.device("meta")).device.type == "meta"
    fill_from(torch.empty(3, device="meta"), torch.ones(3))


def test_values_of_a_cpu_are_on_the_host_already() -> None:
    first, second = torch.arange(3), torch.ones(2, 1)
    arriving = to_host((first, second), CPU)
    assert arriving.values[0] is first
    assert arriving.wait() == [[0, 1, 2], [[1.0], [1.0]]]
    assert to_host((), CPU).wait() == []


def waiting_transfers(source: str) -> list[str]:
    """Calls that move values between host and device and wait for it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, keywords = node.func.attr, {k.arg for k in node.keywords}
        moved = name == "to" and any("device" in ast.unparse(a) for a in node.args)
        made = name in ("tensor", "as_tensor") and "device" in keywords
        if moved or made or name in ("item", "cpu", "cuda"):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("module", IN_A_STEP)
def test_a_step_moves_host_values_only_by_what_does_not_wait(module: str) -> None:
    assert waiting_transfers((PACKAGE / module).read_text()) == []


@pytest.mark.parametrize(
    "line", ["torch.tensor(x, device=d)", "x.to(y.device)", "x.item()", "x.cpu()", "x.cuda()"]
)
def test_every_waiting_transfer_is_found(line: str) -> None:
    assert len(waiting_transfers(line)) == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.sum().item(),
        lambda t: bool(t.any()),
        lambda t: t.nonzero(),
        lambda t: t[t > 0],
        lambda t: t.masked_select(t > 0),
        lambda t: t.tolist(),
    ],
)
def test_the_audit_of_a_step_finds_every_kind_of_read(read: Callable[[Tensor], object]) -> None:
    with HostReads() as reads:
        read(torch.ones(3))
    assert len(reads.reads) == 1


def test_the_audit_leaves_indexing_by_numbers_alone() -> None:
    with HostReads() as reads:
        torch.ones(3)[torch.tensor([1])].add_(1)
    assert reads.reads == []
