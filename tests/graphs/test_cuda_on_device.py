"""The same plans on a real device; what tests on a CPU cannot show."""

from __future__ import annotations

import pytest
import torch

from firstlight.errors import CaptureError
from firstlight.graphs.backends.cuda import CudaBackend, TorchGraphApi, cuda_device
from firstlight.graphs.proof.churn import churn
from tests.graphs.segmented import Slots, attend_all_op, attend_op

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA device; not yet run on a GPU"
    ),
]


def device() -> TorchGraphApi:
    """The current device."""
    return TorchGraphApi(cuda_device("cuda"))


@pytest.mark.parametrize("whole", [False, True])
def test_replays_equal_eager_whatever_memory_comes_and_goes(whole: bool) -> None:
    slots = Slots("cuda")
    attend = attend_all_op() if whole else attend_op()
    graph = slots.capture(lambda: slots.layers(3, attend), device(), whole=whole)
    for seed, live in ((1, 6), (2, 3), (3, 5)):
        churn(slots.x.device)
        slots.refresh(seed, live)
        found = graph.replay().clone()
        slots.refresh(seed, live)
        torch.testing.assert_close(found[:live], slots.layers(3, attend)[:live])


def test_a_capture_that_fails_leaves_a_device_that_captures() -> None:
    slots = Slots("cuda")
    backend = CudaBackend(device(), attention=(attend_op(),), whole=True)
    with pytest.raises(CaptureError, match="captur"):
        backend.capture(slots.layers, owned=slots.owned, label="reads on the host")
    attend = attend_all_op()
    graph = backend.capture(lambda: slots.layers(2, attend), owned=slots.owned, label="again")
    slots.refresh(1)
    found = graph.replay().clone()
    slots.refresh(1)
    torch.testing.assert_close(found, slots.layers(2, attend))


def test_bytes_of_a_capture_are_counted_on_the_device() -> None:
    slots = Slots("cuda")
    api = device()
    graph = slots.capture(slots.layers, api)
    now = api.counters()
    assert 0 < graph.taken.scratch <= graph.bytes
    assert now.allocated <= now.reserved < now.total
