"""One text for one value: what cache keys are made of.

Types count: ``1``, ``1.0``, ``True`` and ``"1"`` are four values, a list is no tuple, and floats
are compared by their bits. What has no such form is refused, because a text that leaves something
out gives two settings one key.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Final

import numpy as np
import torch

from firstlight.media.digest import digest_of

MAX_DEPTH: Final = 32


def canonical(value: object) -> str:
    """The JSON text that stands for a value, the same in every process.

    Takes None, bool, int, float, str, bytes, paths, enum members, dataclasses, lists, tuples, sets,
    mappings, NumPy's and torch's dtypes, arrays and tensors (by digest), of exactly these types
    and nested up to 32 deep.

    Raises:
        TypeError: any other value, named by its type.
    """
    return json.dumps(_form(value, 0), separators=(",", ":"))


def _form(value: object, depth: int) -> list[object]:
    if depth > MAX_DEPTH:
        raise TypeError(f"a value nested more than {MAX_DEPTH} deep has no canonical form")
    if isinstance(value, Enum):  # before the types that members may also be
        return ["enum", _name(type(value)), value.name]
    return _scalar(value) or _container(value, depth + 1)


def _scalar(value: object) -> list[object] | None:
    kind = type(value)
    if value is None or kind in (bool, str):
        return ["none" if value is None else kind.__name__, value]
    if kind is int:
        return ["int", str(value)]  # JSON readers round large ones
    if isinstance(value, float) and kind is float:
        return ["float", struct.pack(">d", value).hex()]
    if isinstance(value, bytes) and kind is bytes:
        return ["bytes", value.hex()]
    if isinstance(value, PurePath):
        return ["path", str(value)]
    if isinstance(value, torch.dtype | np.dtype):
        return ["dtype", type(value).__module__.partition(".")[0], str(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return ["scalar", value.dtype.str, value.tobytes().hex()]
    if isinstance(value, torch.Tensor | np.ndarray):
        return ["array", digest_of(value)]
    return None


def _container(value: object, depth: int) -> list[object]:
    def each(values: Sequence[object]) -> list[object]:
        return [_form(v, depth) for v in values]

    kind = type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        pairs = [[name, _form(getattr(value, name), depth)] for name in names]
        return ["dataclass", _name(kind), pairs]
    if isinstance(value, list | tuple) and kind in (list, tuple):
        return [kind.__name__, each(value)]
    if isinstance(value, set | frozenset) and kind in (set, frozenset):
        return [kind.__name__, sorted(each(list(value)), key=json.dumps)]
    if isinstance(value, Mapping):
        items = [each(pair) for pair in value.items()]
        return ["mapping", sorted(items, key=json.dumps)]
    raise TypeError(f"a value of type {_name(kind)} has no canonical form")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
