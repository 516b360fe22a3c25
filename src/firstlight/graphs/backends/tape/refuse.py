"""Operations that no graph can hold, refused when they are met: by tag, by argument, by method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from firstlight.errors import CaptureError, DynamicShapeError, HostReadError
from firstlight.graphs.backends.tape.facts import OpFacts
from firstlight.graphs.backends.tape.record import leaves
from firstlight.graphs.backends.tape.source import caller

_MASKS = (torch.bool, torch.uint8)

# Reads of a tensor's values that never reach the dispatcher, or reach it under a worse name.
_HOST_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "tolist", "numpy", "item", "__array__", "__bool__", "__int__", "__float__", "__index__",
        "__complex__", "__nonzero__", "__repr__", "__format__", "__dlpack__", "__contains__",
        "__reduce_ex__", "__deepcopy__", "is_nonzero",
    )
    if hasattr(torch.Tensor, name)
)  # fmt: skip
_FROM_HOST = frozenset({torch.tensor, torch.as_tensor, torch.Tensor.new_tensor})


def refuse(func: OpOverload, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if ``func`` reads values on the host, has a data-dependent shape, or is random.

    Raises:
        HostReadError, DynamicShapeError, CaptureError: with the op and the source line.
    """
    if facts.reads_host:
        raise _host_read(facts.name)
    if facts.indexes or facts.writes_index:
        # A mask as index means ``nonzero``; only filling with one value needs no count.
        masked = any(isinstance(i, torch.Tensor) and i.dtype in _MASKS for i in args[1])
        if masked and not (facts.writes_index and args[2].numel() == 1):
            raise _dynamic(func)
    elif facts.dynamic and kwargs.get("output_size") is None:
        raise _dynamic(func)
    if facts.random and _is_random(func, args, kwargs):
        raise CaptureError(
            "the body draws random numbers; sampling belongs outside the body",
            op=facts.name, where=caller(),
        )  # fmt: skip


def _dynamic(func: OpOverload) -> DynamicShapeError:
    return DynamicShapeError(
        "the shape of the result depends on the data; use a dense form (torch.where, a "
        "multiplication by the mask, an index of fixed length)",
        op=str(func), where=caller(),
    )  # fmt: skip


def _is_random(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Attention carries the tag for its dropout; without dropout it is deterministic."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in ("dropout_p", "dropout", "p"):
            default = argument.default_value
            value = args[position] if position < len(args) else kwargs.get(argument.name, default)
            return value is None or float(value) != 0.0
    return True


class HostReadGuard(TorchFunctionMode):
    """Refuses host reads that the dispatcher does not see, such as ``Tensor.tolist``."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _HOST_READS:
            raise _host_read(f"Tensor.{func.__name__}")
        if func in _FROM_HOST:
            # A tensor itself is copied below the dispatcher's eyes; tensors in a list are read.
            given = args[1:] if func is torch.Tensor.new_tensor else args
            data = given[0] if given else kwargs.get("data")
            if not isinstance(data, torch.Tensor) and any(
                isinstance(leaf, torch.Tensor) for leaf in leaves(data)
            ):
                raise _host_read(func.__name__)
        return func(*args, **kwargs)


def _host_read(op: str) -> HostReadError:
    return HostReadError(
        "the body reads a tensor's value on the host; a graph would keep the value that it had "
        "at capture",
        op=op, where=caller(),
    )  # fmt: skip
