"""Modules that are made on torch's meta device, without what that device computes in Python.

transformers makes a model on the meta device and then reads its weights. Embeddings draw values
there all the same, and rotary embeddings count; torch has both as decompositions in Python, which
import sympy: tens of MiB, for numbers that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class WithoutDraws(TorchFunctionMode):
    """Within it, ``torch.nn.init`` leaves meta tensors alone, and ``arange`` counts on the CPU.

    What is computed from such counts is then there for good, as buffers that no file has are; a
    module that computes with one of them and a weight at once fails within this, as with any two
    devices.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.arange and str(kwargs.get("device")) == "meta":
            return torch.arange(*args, **{**kwargs, "device": "cpu"})
        if getattr(func, "__module__", None) == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)
