"""Who keeps the memory alive that a captured graph reads and writes.

A graph remembers addresses, not tensors. Each address must therefore belong to somebody who
outlives the graph: a weight, a slot, a KV pool, or the graph itself for its own intermediates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Owned:
    """One owned storage.

    Attributes:
        owner: e.g. ``slot input_embeds`` or ``weight layers.0.mlp.up_proj.weight``.
        frozen: the contents never change while graphs exist, so that results that depend on
            nothing else may be computed once, at capture.
        storage: kept, so that the memory and its address live as long as this object; None for
            tensors of an opaque layout, which have no storage.
    """

    owner: str
    frozen: bool
    storage: torch.UntypedStorage | None
    tensor: torch.Tensor


class Ownership:
    """The set of storages that a body may touch while it is captured."""

    def __init__(self) -> None:
        self._by_storage: dict[int, Owned] = {}
        self._opaque: dict[int, Owned] = {}
        self._modules: list[tuple[nn.Module, str]] = []

    def add(self, tensor: torch.Tensor, owner: str, *, frozen: bool = False) -> None:
        """Declare the whole storage of ``tensor`` as owned; the first declaration wins.

        Args:
            frozen: promise that the contents do not change while graphs exist.
        """
        if not has_storage(tensor):
            self._opaque.setdefault(id(tensor), Owned(owner, frozen, None, tensor))
            return
        storage = tensor.untyped_storage()
        self._by_storage.setdefault(storage._cdata, Owned(owner, frozen, storage, tensor))

    def release(self, tensor: torch.Tensor) -> None:
        """Own the storage of ``tensor`` no longer; graphs that address it must not replay again."""
        if has_storage(tensor):
            self._by_storage.pop(tensor.untyped_storage()._cdata, None)

    def add_module(self, module: nn.Module, prefix: str = "weight") -> None:
        """Declare all parameters, buffers and tensor attributes of ``module`` as frozen weights.

        A module that is given tensors later (a lazily built table) is looked through again when an
        unknown tensor turns up.
        """
        self._modules.append((module, prefix))
        self._scan(module, prefix)

    def find(self, tensor: torch.Tensor) -> Owned | None:
        """The record of ``tensor``'s storage, or None."""
        found = self._lookup(tensor)
        if found is None and self._modules:
            for module, prefix in self._modules:
                self._scan(module, prefix)
            found = self._lookup(tensor)
        return found

    def owner_of(self, tensor: torch.Tensor) -> str | None:
        """The owner's name, or None if nobody owns the tensor's memory."""
        found = self.find(tensor)
        return None if found is None else found.owner

    def owner_at(self, address: int) -> str | None:
        """The owner of the byte at ``address``, or None."""
        for owned in self._by_storage.values():
            assert owned.storage is not None
            start = owned.storage.data_ptr()
            if start <= address < start + owned.storage.nbytes():
                return owned.owner
        return None

    def records(self) -> tuple[Owned, ...]:
        """Every record, in the order of declaration."""
        return (*self._by_storage.values(), *self._opaque.values())

    def current(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Owner names and tensors of the declared modules as they are now.

        A name that was declared with one tensor may hold another by now.
        """
        for module, prefix in self._modules:
            yield from _named(module, prefix)

    def _lookup(self, tensor: torch.Tensor) -> Owned | None:
        if not has_storage(tensor):
            return self._opaque.get(id(tensor))
        return self._by_storage.get(tensor.untyped_storage()._cdata)

    def _scan(self, module: nn.Module, prefix: str) -> None:
        for owner, tensor in _named(module, prefix):
            self.add(tensor, owner, frozen=True)


def has_storage(tensor: torch.Tensor) -> bool:
    """False for opaque layouts, e.g. weights that oneDNN has packed."""
    return tensor.layout is torch.strided


def _named(module: nn.Module, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    for path, child in module.named_modules():
        for name, tensor in _tensors_of(child):
            yield f"{prefix} {path}.{name}" if path else f"{prefix} {name}", tensor


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)
    for name, value in vars(module).items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (list, tuple)):
            yield from (
                (f"{name}.{i}", v) for i, v in enumerate(value) if isinstance(v, torch.Tensor)
            )
        elif isinstance(value, dict) and not name.startswith("_"):
            yield from ((f"{name}.{k}", v) for k, v in value.items() if isinstance(v, torch.Tensor))
