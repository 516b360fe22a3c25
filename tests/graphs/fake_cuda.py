"""A device for the CUDA backend on a CPU: pieces really replay, and memory is a set of counters.

What a real capture does is kept where it matters: nothing that is captured runs (what a piece would
have computed is poison until its first replay), temporaries of the pool hold garbage whenever a
piece starts, and a read on the host in a capture is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from firstlight.graphs.backends.cuda import CapturedPiece, MemoryCounters
from firstlight.graphs.backends.tape.record import leaves

MIB = 1 << 20
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


@dataclass
class FakePiece:
    """What was captured: calls, and the memory of the pool that they made."""

    calls: list[Callable[[], None]] = field(default_factory=list)
    temporaries: list[Tensor] = field(default_factory=list)
    replays: int = 0
    freed: bool = False

    def replay(self) -> None:
        """Issue the calls; the pool's memory holds what others left in it."""
        assert not self.freed
        self.replays += 1
        for tensor in self.temporaries:
            poison(tensor)
        for call in self.calls:
            call()


class _Capturing(TorchDispatchMode):
    """Logs operations instead of running them, as far as their results' shapes allow."""

    def __init__(self, piece: FakePiece) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.piece = piece

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.data_dependent_output in func.tags:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
        if func.namespace.startswith("firstlight"):
            with self, _NoHostReads():  # the kernel's own operations are captured
                return func.redispatch(_CPU, *args, **kwargs)
        if func._schema.is_mutable:
            self.piece.calls.append(lambda: run(func, args, kwargs))
            return _written(func, args, kwargs)
        result = func(*args, **kwargs)
        if any(r.alias_info is not None for r in func._schema.returns):
            return result  # a view moves no data
        made = [t for t in leaves(result) if isinstance(t, Tensor)]
        for tensor in made:
            poison(tensor)
        self.piece.temporaries += made

        def again() -> None:
            fresh = [t for t in leaves(run(func, args, kwargs)) if isinstance(t, Tensor)]
            for tensor, value in zip(made, fresh, strict=True):
                tensor.copy_(value)

        self.piece.calls.append(again)
        return result


class _NoHostReads(TorchFunctionMode):
    """Reads of values on the host are errors, also those that no dispatcher sees."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (Tensor.tolist, Tensor.item, Tensor.numpy, Tensor.__int__, Tensor.__bool__):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
        return func(*args, **(kwargs or {}))


class FakeApi:
    """A CPU that counts as a GPU of ``total`` bytes.

    Args:
        grows: bytes that the allocator takes for a piece; driver: what the driver takes for it.
        outside: what other processes use. transient: what an eager run uses while it runs.
        compute: the compute capability that it claims.
        fail: called with the number of the capture at its begin; may raise.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        *,
        total: int = 1024 * MIB,
        grows: int = 2 * MIB,
        driver: int = MIB,
        outside: int = 0,
        transient: int = 0,
        compute: tuple[int, int] = (0, 0),
        fail: Callable[[int], None] | None = None,
        fail_end: Callable[[int], None] | None = None,
    ) -> None:
        self.total, self.grows, self.driver = total, grows, driver
        self.reserved = 0
        self.outside, self.transient = outside, transient
        self.log: list[str] = []
        self.pieces: list[FakePiece] = []
        self._compute = compute
        self._fail, self._fail_end = fail, fail_end
        self._mode: _Capturing | None = None
        self._captures = 0

    @property
    def is_open(self) -> bool:
        """Whether a capture was begun and not ended."""
        return self._mode is not None

    def capability(self) -> tuple[int, int]:
        """What it was told."""
        return self._compute

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Notes when the stream is entered and left."""
        self.log.append("stream")
        yield
        self.log.append("default stream")

    def begin(self) -> None:
        """Start to log."""
        assert self._mode is None, "a stream can hold one capture"
        self._captures += 1
        self.log.append("begin")
        self._mode = _Capturing(FakePiece())
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        if self._fail is not None:
            self._fail(self._captures)

    def end(self) -> CapturedPiece:
        """Stop to log."""
        assert self._mode is not None
        if self._fail_end is not None:
            self._fail_end(self._captures)
        piece = self._close()
        self.log.append("end")
        self.reserved += self.grows
        self.outside += self.driver
        self.pieces.append(piece)
        return piece

    def abort(self) -> None:
        """End a failed capture."""
        if self._mode is not None:
            self._close().freed = True
            self.log.append("abort")

    def synchronise(self) -> None:
        """Note it."""
        self.log.append("synchronise")

    def counters(self) -> MemoryCounters:
        """What the counters say."""
        free = self.total - self.reserved - self.outside
        peak = self.reserved + self.transient
        return MemoryCounters(free, self.total, self.reserved, self.reserved, peak)

    def forget_peak(self) -> None:
        """Note it."""
        self.log.append("forget peak")

    def release_unused(self) -> None:
        """Note it."""
        self.log.append("release")

    def _close(self) -> FakePiece:
        assert self._mode is not None
        mode, self._mode = self._mode, None
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return mode.piece


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation that only writes its arguments returns: those arguments."""
    found = [
        args[i] if i < len(args) else kwargs[argument.name]
        for i, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    n = len(func._schema.returns)
    return None if n == 0 else found[0] if n == 1 else tuple(found)


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation, now."""
    with torch.inference_mode():
        return func(*args, **kwargs)


def poison(tensor: Tensor) -> None:
    """What nobody wrote: NaN, or a number that is no index."""
    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(77)
