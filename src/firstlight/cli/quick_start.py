"""Makes the start of a process that is firstlight's own shorter, by what it never needs.

transformers' modeling modules import torch's compiler and its distributed tensors, sympy with them,
which take longer than torch itself; a process that serves one model on one device calls neither.
The collector of cycles looks again and again at what imports and captures make, and finds nothing.

A library must not change its caller's process so: only the commands call this.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from firstlight.cli.import_structure import remembered_structure

COMPILER: Final = "torch._dynamo"
HIGHER_ORDER: Final = "torch._dynamo._trace_wrapped_higher_order_op"
_DECORATORS: Final = ("disable", "allow_in_graph", "assume_constant_result")


@contextmanager
def quick_start(*, stand_ins: bool = True, cache_dir: Path | None = None) -> Iterator[None]:
    """Import and build within this; it imports torch.

    Afterwards what was made counts as permanent for the collector, which runs as before.

    Args:
        stand_ins: keep torch's compiler and its distributed package out. Not where code of a
            checkpoint runs, which may use either.
        cache_dir: where :mod:`firstlight.cli.import_structure` remembers; None if it does not.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        import torch

        left_out = _LeftOut(torch.distributed)
        if stand_ins and COMPILER not in sys.modules:
            left_out.enter()
        try:
            with nullcontext() if cache_dir is None else remembered_structure(cache_dir):
                yield
        finally:
            left_out.restore()
    finally:
        gc.freeze()
        if collects:
            gc.enable()


class _LeftOut:
    """What is in the place of torch's compiler and says that there is no distributed package."""

    def __init__(self, distributed: ModuleType) -> None:
        self._distributed = distributed
        self._is_available = distributed.is_available
        self._modules = {
            COMPILER: _StandIn(COMPILER, self, **dict.fromkeys(_DECORATORS, _decorator)),
            HIGHER_ORDER: _StandIn(HIGHER_ORDER, self, TransformGetItemToIndex=_transform_get_item),
        }

    def enter(self) -> None:
        sys.modules.update(self._modules)
        self._distributed.is_available = _no  # type: ignore[attr-defined]

    def restore(self) -> None:
        """As it was; modules that were imported meanwhile keep what they took from here."""
        self._distributed.is_available = self._is_available  # type: ignore[attr-defined]
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _StandIn(ModuleType):
    """In the place of a module of the compiler until something unforeseen is asked of it.

    Decorators of the compiler say how a function is to be compiled, which it never is.
    """

    def __init__(self, name: str, left_out: _LeftOut, **members: Callable[..., Any]) -> None:
        super().__init__(name)
        self._left_out = left_out
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        """The real module's attribute; everything is put back, and the compiler imported."""
        if name.startswith("__") and (name, self.__name__) != ("__path__", COMPILER):
            raise AttributeError(name)  # asked of any module, e.g. whether it is a package
        self._left_out.restore()
        return getattr(importlib.import_module(self.__name__), name)


def _no() -> bool:
    return False


def _transform_get_item(*args: Any, **kwargs: Any) -> Any:
    """A context manager for masks made by :func:`torch.vmap`; whoever enters it needs the rest."""
    return importlib.import_module(HIGHER_ORDER).TransformGetItemToIndex(*args, **kwargs)


def _decorator(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """``@name``, ``@name(...)`` or ``name(function, ...)``."""
    return _decorator if function is None else function
