"""What a step costs beside arithmetic: calls of a replay, and bytes that are copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.generation import greedy, prompt_of
from benchmarks.row import Row
from firstlight import LLM
from firstlight.core.reason import Phase

_STEPS: Final = 8
_OWN: Final = "firstlight"
"""Operators of this namespace are looked into: they are written in Python."""

_MAKE_COPIES: Final = frozenset(
    {
        *("clone", "_to_copy", "to", "contiguous", "reshape", "flatten"),
        *("cat", "stack", "repeat", "repeat_interleave", "constant_pad_nd"),
        *("index", "index_select", "gather", "embedding"),
    }
)
_WRITE_COPIES: Final[Mapping[str, int]] = {
    "copy_": 1,
    "copy": 1,
    "index_copy_": 3,
    "index_put_": 2,
    "_index_put_impl_": 2,
    "scatter_": 3,
}
"""Operators that write into their first argument, and which argument they write."""


class CopyCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes that operators write as copies of others.

    Views count nothing, nor does a ``reshape`` or ``to`` that returns what it was given.

    Attributes:
        nbytes: so far.
        calls: operators seen, copies or not.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nbytes = 0
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Called for each operator; it is run and counted."""
        kwargs = kwargs or {}
        if func.namespace == _OWN:
            with self:
                return func(*args, **kwargs)
        out = func(*args, **kwargs)
        self.calls += 1
        self.nbytes += _copied(func.overloadpacket.__name__, args, out)
        return out


def _copied(name: str, args: Sequence[Any], out: Any) -> int:
    if name in _WRITE_COPIES:
        written, into = args[_WRITE_COPIES[name]], args[0]
        # What is written may be of another type or broadcast.
        numel = into.numel() if name in ("copy_", "copy") else _numel(written)
        return numel * int(into.element_size())
    if name not in _MAKE_COPIES or not isinstance(out, Tensor):
        return 0
    given = args[0] if isinstance(args[0], list | tuple) else args[:1]
    storages = {t.untyped_storage().data_ptr() for t in given if isinstance(t, Tensor)}
    return 0 if out.untyped_storage().data_ptr() in storages else out.nbytes


def _numel(value: Any) -> int:
    return int(value.numel()) if isinstance(value, Tensor) else 1


def step_rows(llm: LLM, dtype: str) -> Iterator[Row]:
    """Calls of each graph's replay that is looked at, and bytes copied in whole steps."""
    for phase, bucket in ((Phase.PREFILL, 128), (Phase.DECODE, 1), (Phase.DECODE, 8)):
        entries = {entry["size"]: entry for entry in llm.inspect()["buckets"][phase.value]}
        if bucket in entries:
            unit = "rows" if phase is Phase.PREFILL else "requests"
            name = f"calls of a replay, {phase} {bucket} {unit}, {dtype}"
            yield Row(name, ours=entries[bucket]["ops"], unit="calls")
    decode, prefill = copied_by_step(llm)
    note = "by copies, joins, gathers and scatters; LM head and sampling included"
    for name, nbytes in (("decode step", decode), ("prefill of 128 tokens", prefill)):
        yield Row(f"copied in a {name}, {dtype}", round(nbytes / 1024, 1), unit="KiB", note=note)


def copied_by_step(llm: LLM, tokens: int = 128) -> tuple[float, float]:
    """Bytes that one decode step copies, and the prefill of ``tokens`` tokens.

    Two runs of the same prompt differ by a known number of decode steps.
    """
    text, _ = prompt_of(llm, tokens)

    def copied(steps: int) -> int:
        llm.flush_caches()
        with torch.inference_mode(), CopyCounter() as counter:
            llm.generate(text, greedy(1 + steps))
        return int(counter.nbytes)

    llm.generate(text, greedy(2))  # what happens once only, in a first request
    prefill = copied(0)
    return (copied(_STEPS) - prefill) / _STEPS, float(prefill)
