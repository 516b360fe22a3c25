"""What is said where there is no CUDA, and on which GPU this was last run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from firstlight import LLM
from firstlight.errors import ConfigError
from firstlight.graphs.backends.cuda import cuda_device, gpu_runs, last_run, why_no_cuda
from firstlight.graphs.backends.cuda.verified import NEVER


def machine(
    monkeypatch: pytest.MonkeyPatch, *, build: str | None, devices: int, hip: str | None = None
) -> None:
    """A torch of some build on a machine with some devices."""
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.parametrize(("hip", "kind"), [(None, "CPU"), ("6.4", "ROCm")])
def test_a_torch_without_cuda_is_named_as_the_reason(
    hip: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, build=None, devices=0, hip=hip)
    with pytest.raises(ConfigError) as caught:
        cuda_device("cuda")
    message = str(caught.value)
    assert message.startswith(
        f"device = 'cuda': this torch ({torch.__version__}) is a {kind} build"
    )
    assert message.endswith("accepted here: 'cpu'")


def test_a_machine_without_a_device_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, build="13.0", devices=0)
    with pytest.raises(ConfigError, match=r"device = 'cuda:1': .* finds no device .no NVIDIA GPU"):
        cuda_device("cuda:1")


def test_a_device_number_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, build="13.0", devices=2)
    with pytest.raises(ConfigError, match="accepted here: 'cuda:0', 'cuda:1'"):
        cuda_device("cuda:2")


def test_a_device_gets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, build="13.0", devices=2)
    assert why_no_cuda() is None
    assert cuda_device("cuda") == torch.device("cuda", 0)
    assert cuda_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_an_engine_on_cuda_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="device = 'cuda': this torch"):
        LLM("/no/such/checkpoint", device="cuda")


def test_the_backend_is_imported_without_touching_cuda() -> None:
    program = (
        "import torch, firstlight.graphs.backends.cuda; assert not torch.cuda.is_initialized()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_the_last_run_on_record_is_the_one_that_is_told() -> None:
    run = '{"gpu": "H", "torch": "2.13", "commit": "abc", "date": "2026-12-01", "passed": %s}'
    runs = gpu_runs(f'{{"runs": [{run % "true"}, {run % "false"}]}}')
    assert last_run(runs[:1]) == (
        "last run on H with torch 2.13, commit abc, 2026-12-01: all checks passed"
    )
    assert last_run(runs).endswith("not all checks passed")


def test_what_failed_was_not_run_and_missed_its_limit_is_told() -> None:
    run = (
        '{"gpu": "H", "torch": "2.13", "transformers": "5.2", "commit": "abc", "date": "2026-12-01"'
        ', "passed": false, "failed": ["verify"], "dropped": ["encoder", "kernels"], "missed": '
        '["decode"], "reached": ["capture"]}'
    )
    (found,) = gpu_runs(f'{{"runs": [{run}]}}')
    assert found.reached == ("capture",)
    assert str(found) == (
        "last run on H with torch 2.13, transformers 5.2, commit abc, 2026-12-01: not all checks "
        "passed; failed: verify; not run: encoder, kernels; missed: decode"
    )


def test_without_a_run_it_is_said_that_there_was_none() -> None:
    assert last_run(()) == NEVER == "not yet run on a GPU"


def test_the_record_of_the_package_can_be_read() -> None:
    assert isinstance(last_run(), str)
