"""The ways to issue one recorded operation at replay: which function, and where results go.

A *form* is made for one operation and later bound to real tensors. For a functional operation
``y = f(x)`` there are up to three: ``f(x, out=y)``, ``y.copy_(f(x))``, and for operations that only
copy or fill, ``y.copy_(x)`` or ``y.fill_(v)``. Each is reached either through torch's Python
binding, which parses arguments fastest, or through the dispatcher's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from firstlight.graphs.backends.tape.record import leaves

Call = Callable[[], object]
Outs = Sequence[torch.Tensor | None]
_PLACEMENT = ("dtype", "layout", "device", "pin_memory")


@dataclass(frozen=True, slots=True)
class Form:
    """One way to issue an operation.

    Attributes:
        bind: gives the call without arguments.
        all_results: every result needs memory, also one that nobody reads.
    """

    name: str
    bind: Callable[[tuple[Any, ...], dict[str, Any], Outs], Call]
    all_results: bool = False


def forms_of(func: OpOverload, n_outputs: int) -> list[Form]:
    """All forms of ``func``, most likely the fastest first.

    Args:
        n_outputs: results that go into new memory; 0 for operations that only write arguments.
    """
    name, fn = _callee(func)
    if n_outputs == 0:
        return [Form(name, _plain(fn))]
    forms = list(_moving(func))
    out = out_overload(func)
    if out is not None:
        forms += _out_forms(func, out)
    forms.append(Form(f"{name} + copy_", _copying(fn)))
    return forms


def fallback(func: OpOverload, n_outputs: int, kernel: Callable[..., Any] | None = None) -> Form:
    """The form that is right for every operation: the recorded function, its results copied.

    Args:
        kernel: a Python function that is called instead of the dispatcher, for custom operations.
    """
    fn = func._op if kernel is None else kernel
    name = "dispatcher" if kernel is None else getattr(kernel, "__name__", "kernel")
    return Form(name, _plain(fn) if n_outputs == 0 else _copying(fn))


def out_overload(func: OpOverload) -> OpOverload | None:
    """The overload of the same operation that writes into given tensors, if there is one."""
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if a.name not in _PLACEMENT]
    packet = func.overloadpacket
    for name in packet.overloads():
        candidate: OpOverload = getattr(packet, name)
        arguments = candidate._schema.arguments
        n_out = sum(a.is_out for a in arguments)
        if n_out == 0 or n_out != len(func._schema.returns):
            continue
        given = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        if [g for g in given if g[0] not in _PLACEMENT] == wanted:
            return candidate
    return None


def _missing(func: OpOverload, out: OpOverload) -> frozenset[str]:
    """Arguments that the functional form has and the other lacks, e.g. ``dtype``."""
    known = {a.name for a in out._schema.arguments}
    return frozenset(a.name for a in func._schema.arguments if a.name not in known)


def _callee(func: OpOverload) -> tuple[str, Callable[..., Any]]:
    """torch's Python binding of an operation, else the dispatcher's function."""
    name = func._schema.name.partition("::")[2]
    for module in (torch._C._VariableFunctions, torch._C._nn, torch.Tensor):
        found = getattr(module, name, None)
        if callable(found):
            return f"torch.{name}", found
    return f"ops.{name}", func._op


def _out_forms(func: OpOverload, out: OpOverload) -> Iterator[Form]:
    """Through the binding, and through the dispatcher where the binding takes no output."""
    names = tuple(a.name for a in out._schema.arguments if a.is_out)
    dropped = _missing(func, out)
    name = func._schema.name.partition("::")[2]
    for module in (torch._C._VariableFunctions, torch._C._nn):
        found = getattr(module, name, None)
        if callable(found):
            bind = _writing(found, None, len(names), dropped)
            yield Form(f"torch.{name}(out=)", bind, all_results=True)
            break
    bind = _writing(out._op, names, len(names), dropped)
    yield Form(f"ops.{name}(out=)", bind, all_results=True)


def _moving(func: OpOverload) -> Iterator[Form]:
    """Operations that only copy or fill need no operation of their own."""
    name = func._schema.name
    if name in ("aten::_to_copy", "aten::clone", "aten::lift_fresh_copy"):
        yield Form("copy_", lambda args, kwargs, outs: partial(_first(outs).copy_, args[0]))
    fills = {"aten::zeros": 0, "aten::zeros_like": 0, "aten::new_zeros": 0,
             "aten::ones": 1, "aten::ones_like": 1, "aten::new_ones": 1}  # fmt: skip
    if name in fills:
        value = fills[name]
        yield Form("fill_", lambda args, kwargs, outs: partial(_first(outs).fill_, value))
    if name in ("aten::full", "aten::full_like"):
        yield Form("fill_", lambda args, kwargs, outs: partial(_first(outs).fill_, args[1]))


def _first(outs: Outs) -> torch.Tensor:
    assert outs[0] is not None
    return outs[0]


def _plain(fn: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any], Outs], Call]:
    return lambda args, kwargs, outs: partial(fn, *args, **kwargs)


def _writing(
    fn: Callable[..., Any], names: tuple[str, ...] | None, n: int, dropped: frozenset[str]
) -> Callable[[tuple[Any, ...], dict[str, Any], Outs], Call]:
    """Results as ``out=`` (binding; a tuple for several) or under their own names (dispatcher)."""

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any], outs: Outs) -> Call:
        if any(out is None for out in outs):
            raise TypeError("a result is a view of an argument")
        rest = {k: v for k, v in kwargs.items() if k not in dropped}
        if names is not None:
            return partial(fn, *args, **rest, **dict(zip(names, outs, strict=True)))
        return partial(fn, *args, **rest, out=outs[0] if n == 1 else tuple(outs))

    return bind


def _copying(fn: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any], Outs], Call]:
    def bind(args: tuple[Any, ...], kwargs: dict[str, Any], outs: Outs) -> Call:
        call = partial(fn, *args, **kwargs)
        kept = tuple((i, out) for i, out in enumerate(outs) if out is not None)
        if not kept:
            return call
        if len(outs) == 1:
            return partial(_copy_one, kept[0][1], call)
        return partial(_copy_several, kept, call)

    return bind


def _copy_one(out: torch.Tensor, call: Callable[[], Any]) -> None:
    result = call()
    out.copy_(result if isinstance(result, torch.Tensor) else next(_tensors(result)))


def _copy_several(outs: tuple[tuple[int, torch.Tensor], ...], call: Callable[[], Any]) -> None:
    results = tuple(_tensors(call()))
    for i, out in outs:
        out.copy_(results[i])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among results, in the order in which a recording numbers them."""
    return (item for item in leaves(value) if isinstance(item, torch.Tensor))
