"""Runs a body once and writes down every operation that moves data.

Recorded under ``torch.no_grad``, not ``inference_mode``: there composite operations reach a
dispatch mode undecomposed and flagged as views although some of them copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from firstlight.errors import CaptureError, UnownedTensorError
from firstlight.graphs.backends.tape.facts import OpFacts, facts_of
from firstlight.graphs.backends.tape.record import (
    OpCall,
    Origin,
    Place,
    Recording,
    StorageRecord,
    leaves,
    map_nested,
)
from firstlight.graphs.backends.tape.refuse import HostReadGuard, refuse
from firstlight.graphs.backends.tape.source import caller
from firstlight.graphs.ownership import Ownership, has_storage

Kernels = Mapping[OpOverload, Callable[..., Any]]
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_KEPT_CONTENT = 4096  # bytes of a host value that are compared to share it between graphs


def record(
    fn: Callable[[], torch.Tensor],
    owned: Ownership,
    kernels: Kernels,
    device: torch.device | None = None,
    stand_ins: Kernels | None = None,
) -> Recording:
    """Call ``fn`` once, for real, and return what it did.

    Args:
        stand_ins: give results of the right shapes and compute nothing. They are called for what
            depends on slots, whose values no graph keeps: then a recording costs no arithmetic.
        device: where its tensors lie; None is the CPU. On another device, tensors of the CPU may
            take part too: whether a replay can do with them is for the backend to say.

    Raises:
        CaptureError: an operation cannot be held by a graph, or the result is not one tensor.
    """
    recorder = Recorder(owned, kernels, device, stand_ins)
    with torch.no_grad(), HostReadGuard(), recorder:
        output = fn()
    if not isinstance(output, torch.Tensor):
        raise CaptureError(f"the body returned {type(output).__name__}; it must be one tensor")
    place = recorder.place(output, "the body's result")
    if not isinstance(place, Place):
        raise CaptureError("the body returned a tensor of an opaque layout")
    recorder.recording.output = place
    return recorder.recording


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode; one per recording."""

    def __init__(
        self,
        owned: Ownership,
        kernels: Kernels,
        device: torch.device | None = None,
        stand_ins: Kernels | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = Recording()
        self._owned = owned
        self._kernels = kernels
        self._stand_ins = stand_ins or {}
        self._device = torch.device("cpu") if device is None else device
        self._index: dict[int, int] = {}
        # A weak reference keeps the address of a freed storage's header from being reused, so that
        # one address means one storage for the whole recording.
        self._weak: list[StorageWeakRef] = []
        self._variable: set[int] = set()
        self._facts: dict[OpOverload, OpFacts] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Guarding the handler against torch.compile would import the compiler: 2 s at the first
        # capture, for a handler that is never compiled.
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = facts_of(func)
        if facts.suspicious:
            refuse(func, facts, args, kwargs)
        if facts.host_value:
            self._adopt_host_value(args[0])
        before = self._places(facts.name, args, kwargs)
        kernel = self._kernels.get(func, func)
        if func in self._stand_ins and self._depends_on_slots(before):
            kernel = self._stand_ins[func]
        with torch._C.DisableTorchFunction():
            result = kernel(*args, **kwargs)
        self._note(func, facts, args, kwargs, before, result)
        return result

    def place(self, tensor: torch.Tensor, op: str) -> Place | torch.Tensor:
        """Where ``tensor`` lies; itself if it is of an owned opaque layout.

        Raises:
            UnownedTensorError: nobody keeps its memory alive.
            CaptureError: a kind of tensor that cannot be described by an address.
        """
        if not has_storage(tensor):
            if self._owned.find(tensor) is None:
                raise _unowned(tensor, op)
            return tensor
        _check_plain(tensor, op, self._device)
        index = self._known(tensor)
        if index is None:
            index = self._adopt_owned(tensor, op)
        record = self.recording.storages[index]
        record.n_bytes = max(record.n_bytes, tensor.untyped_storage().nbytes())
        offset = int(tensor.storage_offset())
        return Place(index, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def _depends_on_slots(self, places: _Arguments) -> bool:
        read = (p.storage for p in leaves(places) if isinstance(p, Place))
        return any(self._varies(i) for i in read)

    def _varies(self, index: int) -> bool:
        owned = self.recording.storages[index].origin is Origin.OWNED
        return owned or index in self._variable

    def _known(self, tensor: torch.Tensor) -> int | None:
        return self._index.get(tensor.untyped_storage()._cdata)

    def _adopt_owned(self, tensor: torch.Tensor, op: str) -> int:
        owned = self._owned.find(tensor)
        if owned is None:
            raise _unowned(tensor, op)
        origin = Origin.FROZEN if owned.frozen else Origin.OWNED
        return self._add(tensor.untyped_storage(), origin, owned.owner, held=True)

    def _add(self, storage: torch.UntypedStorage, origin: Origin, owner: str, held: bool) -> int:
        index = len(self.recording.storages)
        self.recording.storages.append(
            StorageRecord(
                index, origin, owner, storage.nbytes(), storage if held else None, storage.device
            )
        )
        self._index[storage._cdata] = index
        self._weak.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return index

    def _adopt_host_value(self, tensor: torch.Tensor) -> None:
        """Host numbers become a constant of the graph: ``torch.tensor([...])``, ``x[0] = 1.0``."""
        if self._known(tensor) is not None:
            return
        storage = tensor.untyped_storage()
        if not storage.resizable():
            return  # memory of somebody else, e.g. of a numpy array, who may change it
        index = self._add(storage, Origin.MADE, f"host value at {caller()}", held=True)
        if storage.nbytes() <= _KEPT_CONTENT:
            there = tensor.cpu().untyped_storage()
            content = ctypes.string_at(there.data_ptr(), there.nbytes())
            self.recording.storages[index].content = content

    def _places(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        def leaf(value: Any) -> Any:
            return self.place(value, op) if isinstance(value, torch.Tensor) else value

        return map_nested(leaf, args), {k: map_nested(leaf, v) for k, v in kwargs.items()}

    def _note(
        self,
        func: OpOverload,
        facts: OpFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: _Arguments,
        result: Any,
    ) -> None:
        returned = [t for t in leaves(result) if isinstance(t, torch.Tensor)]
        outputs, writes = self._outputs(facts.name, returned)
        if facts.allocates:
            return
        if facts.written and not facts.moves_view:
            writes |= self._written(facts, args, kwargs, before)
        if facts.moves_view or (not writes and returned):
            self.recording.views += 1
            return
        reads = {p.storage for p in leaves(before) if isinstance(p, Place)}
        call = OpCall(
            func, before[0], before[1], outputs, tuple(sorted(reads)), tuple(sorted(writes)),
            caller(), effect=not writes,
        )  # fmt: skip
        self.recording.ops.append(call)
        self._hold_constants(call, returned)

    def _written(
        self, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], before: _Arguments
    ) -> set[int]:
        """Storages of the written arguments; an output argument may have been resized."""
        writes: set[int] = set()
        for position, name in facts.written:
            value = args[position] if position < len(args) else kwargs.get(name)
            for tensor in leaves(value):
                if not isinstance(tensor, torch.Tensor):
                    continue
                after = self.place(tensor, facts.name)
                if not isinstance(after, Place):
                    raise CaptureError(
                        "it writes to an opaque layout", op=facts.name, where=caller()
                    )
                writes.add(after.storage)
                if value is tensor and name in kwargs:
                    before[1][name] = after
        return writes

    def _outputs(
        self, op: str, returned: list[torch.Tensor]
    ) -> tuple[tuple[Place | None, ...], set[int]]:
        """Places of the returned tensors and the storages among them that are new."""
        outputs: list[Place | None] = []
        made: set[int] = set()
        for tensor in returned:
            if not has_storage(tensor):
                raise CaptureError(
                    "the result has an opaque layout; pack weights before capture",
                    op=op, where=caller(),
                )  # fmt: skip
            if self._known(tensor) is None:
                storage = tensor.untyped_storage()
                made.add(self._add(storage, Origin.MADE, f"{op} at {caller()}", held=False))
            elif self._known(tensor) not in made:
                outputs.append(None)
                continue
            place = self.place(tensor, op)
            outputs.append(place if isinstance(place, Place) else None)
        return tuple(outputs), made

    def _hold_constants(self, call: OpCall, returned: list[torch.Tensor]) -> None:
        """Keep results that depend on weights and host numbers only; let go what turned variable.

        Whether such a result is a constant in the end is settled when the recording is complete.
        """
        storages = self.recording.storages
        constant = not call.effect and all(
            storages[i].origin is not Origin.OWNED and i not in self._variable for i in call.reads
        )
        constant = constant and all(storages[i].origin is Origin.MADE for i in call.writes)
        if not constant:
            self._variable.update(call.writes)
            for index in call.writes:
                if storages[index].origin is Origin.MADE:
                    storages[index].held = None
            return
        for tensor in returned:
            storage = tensor.untyped_storage()
            index = self._index[storage._cdata]
            if index in call.writes:
                storages[index].held = storage


def _check_plain(tensor: torch.Tensor, op: str, device: torch.device) -> None:
    """Refuse what shape, strides and address do not describe."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        reason = f"tensors of class {type(tensor).__name__} hide their memory"
    elif tensor.is_conj() or tensor.is_neg():
        reason = "a lazily conjugated or negated view; call resolve_conj() or resolve_neg()"
    elif tensor.device.type not in ("cpu", device.type):
        reason = f"a tensor on {tensor.device}; the body runs on {device}"
    else:
        return
    raise CaptureError(reason, op=op, where=caller())


def _unowned(tensor: torch.Tensor, op: str) -> UnownedTensorError:
    return UnownedTensorError(
        f"a tensor of shape {list(tensor.shape)} and dtype {tensor.dtype} belongs to no weight, "
        "slot or pool and was not made by the body: a graph would remember an address that nobody "
        "keeps alive; make it a buffer of the module, or declare it with Ownership.add",
        op=op, where=caller(),
    )  # fmt: skip
