"""What no graph can hold is refused at capture, with the operation and the model's own line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firstlight.errors import (
    CaptureError,
    DynamicShapeError,
    HostReadError,
    UnownedTensorError,
)
from tests.graphs.tape import capture

LOOSE = torch.ones(3)


def refused(fn: Callable[[Any], object], kind: type[CaptureError]) -> CaptureError:
    """Capture ``fn`` over a slot and return the error, whose line must lie in ``fn``."""
    x = torch.zeros(4, 3)
    with pytest.raises(kind) as caught:
        capture(lambda: torch.as_tensor(fn(x)), slots={"x": x})
    lines, first = inspect.getsourcelines(fn)
    file, _, line = caught.value.where.rpartition(":")
    assert file == __file__
    assert first <= int(line) < first + len(lines)
    assert caught.value.op
    return caught.value


HOST_READS: dict[str, Callable[[Any], object]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "array": lambda x: __import__("numpy").asarray(x),
    "bool": lambda x: bool(x.sum()),
    "if": lambda x: x if (x > 0).all() else -x,
    "int": lambda x: int(x.sum()),
    "float": lambda x: float(x.sum()),
    "index": lambda x: [0][x.sum().long()],
    "slice by tensor": lambda x: x[: x.sum().long()],
    "select by tensor": lambda x: x[x.sum().long()],
    "tensor of tensors": lambda x: torch.tensor([x.sum(), 1.0]),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "in": lambda x: 1.0 in x,
    "print": lambda x: str(x),
    "dlpack": lambda x: torch.utils.dlpack.from_dlpack(x),
    "full": lambda x: torch.full((2,), x.sum()),
    "arange": lambda x: torch.arange(x.sum()),
    "split sizes": lambda x: torch.split(x, x.sum().long()),
}

DYNAMIC: dict[str, Callable[[Any], object]] = {
    "nonzero": lambda x: x.nonzero(),
    "boolean index": lambda x: x[x > 0],
    "boolean rows": lambda x: x[x[:, 0] > 0, :],
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "where with one argument": lambda x: torch.where(x > 0)[0],
    "repeat_interleave": lambda x: x.repeat_interleave(torch.ones(4, dtype=torch.long), 0),
    "bincount": lambda x: x[:, 0].long().bincount(),
    "masked assignment of rows": lambda x: x.index_put((x > 0,), x[0]),
}


@pytest.mark.parametrize("name", HOST_READS)
def test_a_host_read_is_refused(name: str) -> None:
    refused(HOST_READS[name], HostReadError)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_shape_made_from_data_is_refused(name: str) -> None:
    refused(DYNAMIC[name], DynamicShapeError)


def test_the_error_names_the_operation() -> None:
    assert refused(lambda x: x.sum().tolist(), HostReadError).op == "Tensor.tolist"
    assert refused(lambda x: x.nonzero(), DynamicShapeError).op == "aten.nonzero.default"


@pytest.mark.parametrize(
    "draw", [torch.rand_like, torch.dropout_, lambda x: x.normal_(), lambda x: x + torch.rand(3)]
)
def test_random_numbers_are_refused(draw: Callable[..., Tensor]) -> None:
    x = torch.zeros(4, 3)
    arguments = (x, 0.5, True) if draw is torch.dropout_ else (x,)
    with pytest.raises(CaptureError, match="random"):
        capture(lambda: draw(*arguments), slots={"x": x})


def test_attention_without_dropout_is_not_random() -> None:
    x = torch.zeros(1, 2, 4, 8)
    capture(
        lambda: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        slots={"x": x},
    )


def test_a_tensor_that_nobody_owns_is_refused() -> None:
    error = refused(lambda x: x + LOOSE, UnownedTensorError)
    assert error.op == "aten.add.Tensor"
    assert "[3]" in str(error)


def test_an_unowned_array_is_refused() -> None:
    import numpy as np

    array = np.ones(3, dtype=np.float32)
    refused(lambda x: x + torch.from_numpy(array), UnownedTensorError)


def test_an_unowned_result_is_refused() -> None:
    with pytest.raises(UnownedTensorError):
        capture(lambda: LOOSE)


def test_writing_an_unowned_tensor_is_refused() -> None:
    refused(lambda x: LOOSE.add_(x[0]), UnownedTensorError)


def test_a_table_that_a_module_builds_at_its_first_call_is_owned() -> None:
    class Lazy(nn.Module):
        table: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(3.0)
            return x + self.table

    from firstlight.graphs import Ownership, TapeBackend

    module, x, owned = Lazy(), torch.zeros(4, 3), Ownership()
    owned.add_module(module)
    owned.add(x, "slot x")
    module(x)
    graph = TapeBackend().capture(lambda: module(x), owned=owned, label="lazy")
    assert torch.equal(graph.replay()[0], torch.arange(3.0))


def test_a_masked_fill_by_assignment_is_allowed() -> None:
    x = torch.zeros(4, 3)

    def fill() -> Tensor:
        y = x + 1
        y[y > 1] = 0.0
        return y

    graph = capture(fill, slots={"x": x})
    x.copy_(torch.arange(12.0).view(4, 3))
    assert graph.replay().sum() == 1


def test_a_body_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(CaptureError, match="returned tuple"):
        capture(lambda: (torch.zeros(1),))  # type: ignore[arg-type, return-value]


def test_a_lazily_conjugated_tensor_is_refused() -> None:
    x = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(CaptureError, match="resolve_conj"):
        capture(lambda: x.conj() + 1, slots={"x": x})


def test_a_tensor_subclass_is_refused() -> None:
    class Wrapped(Tensor):
        pass

    x = torch.zeros(3).as_subclass(Wrapped)
    with pytest.raises(CaptureError, match="Wrapped"):
        capture(lambda: torch.ops.aten.neg.default(x), slots={"x": x})


def test_a_refused_capture_leaves_torch_as_it_was() -> None:
    refused(lambda x: x.tolist(), HostReadError)
    assert torch.tensor([1.0]).tolist() == [1.0]
    assert torch.is_grad_enabled()
