"""The compiled library, its threads, and torch operations on them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from firstlight.native.build import NativeUnavailableError, build_library
from firstlight.native.calls import LANES
from firstlight.native.instruction import Instruction, Op, array_of, instruction
from firstlight.native.ops import register
from firstlight.native.weight_memory import WeightMemory
from firstlight.native.weights import PackedWeight, WeightFormat, format_of

_VERSION = 2
"""Of the layout of instructions and of the functions; see ``fl_version``."""


class Kernels:
    """The library with a team of threads; one program runs at a time, further callers wait.

    The threads sleep between programs, after some microseconds of looking out for the next one.
    They end with this object, not while the process does. A forked process gets threads of its own
    with its first program.

    Args:
        threads: with the caller's own; the system may give fewer.

    Raises:
        NativeUnavailableError: the file cannot be loaded, or is of another version.
    """

    def __init__(self, path: Path, threads: int) -> None:
        try:
            self._library = _load(path)
        except (OSError, AttributeError) as error:
            raise NativeUnavailableError(f"{path} cannot be loaded: {error}") from error
        self.path = path
        self._memory = WeightMemory()
        self._machine = self._library.fl_open(threads)
        if self._machine is None:
            raise NativeUnavailableError("no memory for the threads of the kernels")
        # At the end of the process a thread may still run a program: then nothing is taken apart.
        weakref.finalize(self, self._library.fl_close, self._machine).atexit = False

    @property
    def threads(self) -> int:
        """How many threads compute, the caller's own among them."""
        return int(self._library.fl_threads(self._machine))

    @property
    def dots_bytes(self) -> bool:
        """Whether this CPU sums products of bytes by an instruction, so that ``linear_int8`` is
        the faster way."""
        return bool(self._library.fl_dots_bytes())

    def resize(self, threads: int) -> None:
        """Run with so many threads from the next program on."""
        self._library.fl_resize(self._machine, threads)

    def program(self, instructions: Sequence[Instruction]) -> Program:
        """A call that runs the instructions in order.

        Each starts when the one before it is done. The call keeps their tensors alive.
        """
        array = self._ready(instructions)
        kept = (self, *instructions)
        return Program(self._library.fl_run, self._machine, array, len(instructions), kept)

    def run(self, *instructions: Instruction) -> None:
        """Run instructions once."""
        self._library.fl_run(self._machine, self._ready(instructions), len(instructions))

    def pack(self, weight: Tensor, format: WeightFormat | None = None) -> PackedWeight:
        """Lay out ``weight`` ``[out_features, in_features]``, rounding it if the format has codes.

        Raises:
            ValueError: the kernels do not take it in this format, see :func:`can_pack`, or it has
                values that codes cannot hold: NaN, infinity, beyond float16.
        """
        format = format_of(weight, format)
        weight = weight.detach().contiguous()
        n, k = weight.shape
        n_bytes = -(-n // LANES) * int(self._library.fl_panel_bytes(int(format), k))
        data = self._memory.take(n_bytes)
        self.run(instruction(Op.PACK, (weight, data), (n, k), dtype=weight.dtype, kind=format))
        return PackedWeight(data, format, n, k, weight.dtype)

    def unpack(self, weight: PackedWeight) -> Tensor:
        """What the codes of a weight stand for, in the type that it was packed from."""
        n, k = weight.out_features, weight.in_features
        out = torch.empty(n, k, dtype=weight.dtype)
        data, format = weight.data, weight.format
        self.run(instruction(Op.UNPACK, (data, out), (n, k), dtype=weight.dtype, kind=format))
        return out

    def _ready(self, instructions: Sequence[Instruction]) -> Any:
        array = array_of(instructions)
        self._library.fl_prepare(array, len(instructions))
        return array


class Program:
    """A plain call with prepared arguments: no work is left for the replay."""

    __slots__ = ("_arguments", "_kept", "_run")

    def __init__(self, run: Any, machine: int, array: Any, n: int, kept: Sequence[object]) -> None:
        self._run = run
        self._arguments = (machine, array, n)
        self._kept = tuple(kept)

    def __call__(self) -> None:
        self._run(*self._arguments)

    def each(self) -> Iterator[tuple[Instruction, Callable[[], None]]]:
        """The instructions in order, each with a call that runs it alone: for who times them."""
        machine, array, _ = self._arguments
        for one in array:
            yield one, partial(self._run, machine, ctypes.byref(one), 1)


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    version, width = library.fl_version(), library.fl_instruction_bytes
    width.restype = ctypes.c_int64
    if version != _VERSION or width() != ctypes.sizeof(Instruction):
        raise NativeUnavailableError(f"{path} is of another version ({version})")
    library.fl_panel_bytes.restype = ctypes.c_int64
    library.fl_panel_bytes.argtypes = (ctypes.c_int32, ctypes.c_int64)
    library.fl_dots_bytes.restype = ctypes.c_int32
    library.fl_open.restype = ctypes.c_void_p
    library.fl_open.argtypes = (ctypes.c_int32,)
    library.fl_close.argtypes = (ctypes.c_void_p,)
    library.fl_close.restype = None
    library.fl_threads.argtypes = (ctypes.c_void_p,)
    library.fl_resize.restype = None
    library.fl_resize.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    library.fl_prepare.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    library.fl_prepare.restype = None
    library.fl_run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    library.fl_run.restype = None
    return library


def open_kernels(cache_dir: Path | None) -> Kernels:
    """The kernels of this process, compiled if they are not yet, with torch's number of threads.

    torch's registry of operations and the threads are the process's: so is the result, whichever
    folder it was first asked for. Each call sets the threads to torch's number at that time.

    Raises:
        NativeUnavailableError: see :func:`build_library` and :class:`Kernels`.
    """
    lock, opened = _of_process()
    threads = torch.get_num_threads()
    with lock:
        if not opened:
            kernels = Kernels(build_library(cache_dir), threads)
            register(kernels)
            opened.append(kernels)
        elif opened[0].threads != threads:
            opened[0].resize(threads)
        return opened[0]


@cache
def _of_process() -> tuple[Lock, list[Kernels]]:
    return Lock(), []
