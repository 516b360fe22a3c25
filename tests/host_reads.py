"""Where the host would wait for a GPU, found on a CPU."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = frozenset(
    {"_local_scalar_dense", "nonzero", "is_nonzero", "item", "masked_select", "equal", "unique_dim"}
)
"""Operations whose result, or whose result's shape, the host needs before it goes on."""


@dataclass(frozen=True)
class Read:
    """One operation that waits: its name and the innermost place in ``src/firstlight``."""

    op: str
    file: str
    function: str


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the operations that would wait for a device.

    Beside the operations of :data:`WAITING` this is indexing by a bool tensor, whose shape depends
    on data, and a tensor's ``tolist``, which on a CPU copies nothing and so is no operation.

    Args:
        ignoring: files, below ``src/firstlight``, whose tensors are the host's own.
    """

    def __init__(self, ignoring: Sequence[str] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ignoring = tuple(ignoring)
        self.reads: list[Read] = []
        self._tolist = Tensor.tolist

    def __enter__(self) -> HostReads:
        original = self._tolist

        def tolist(tensor: Tensor) -> Any:
            self._note("tolist")
            return original(tensor)

        Tensor.tolist = tolist  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        Tensor.tolist = self._tolist  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING or (name.startswith(("index", "_index")) and _by_bool(args)):
            self._note(name)
        return func(*args, **(kwargs or {}))

    def places(self) -> list[tuple[str, str]]:
        """File and function of each read, once, sorted."""
        return sorted({(read.file, read.function) for read in self.reads})

    def _note(self, op: str) -> None:
        frames = [f for f in traceback.extract_stack() if "/src/firstlight/" in f.filename]
        if not frames:
            self.reads.append(Read(op, "", ""))
            return
        file = frames[-1].filename.partition("/src/firstlight/")[2]
        if file not in self._ignoring:
            self.reads.append(Read(op, file, frames[-1].name))


def _by_bool(args: Any) -> bool:
    indices = args[1] if len(args) > 1 else ()
    return isinstance(indices, (list, tuple)) and any(
        isinstance(i, Tensor) and i.dtype is torch.bool for i in indices
    )
