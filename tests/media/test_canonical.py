"""Equal values have one canonical text, and different ones never share it."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firstlight.media.canonical import canonical


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Text(StrEnum):
    ONE = "1"


@dataclass
class Size:
    height: int
    width: int


@dataclass
class Crop:
    height: int
    width: int


DIFFERENT = [
    None,
    False,
    True,
    0,
    1,
    2**64,
    0.0,
    -0.0,
    1.0,
    math.inf,
    "",
    "1",
    "None",
    b"",
    b"1",
    Path("1"),
    Colour.RED,
    Number.ONE,
    Text.ONE,
    Size(1, 2),
    Size(2, 1),
    Crop(1, 2),
    [],
    (),
    set(),
    frozenset(),
    {},
    [1],
    (1,),
    {1},
    frozenset({1}),
    {1: 1},
    {"1": 1},
    {1: "1"},
    [[1], 2],
    [[1, 2]],
    [1, [2]],
    ["a", "b"],
    ["ab"],
    ['a","b'],
    torch.float32,
    torch.float16,
    np.dtype("float32"),
    np.float32(1),
    np.float64(1),
    np.int64(1),
    torch.tensor(1.0),
    torch.tensor([1.0]),
    torch.tensor([1.0], dtype=torch.float64),
    torch.tensor([1, 2]),
    torch.tensor([[1, 2]]),
    np.array([1, 2]),
    np.array([1, 2], dtype=np.int32),
]


def test_different_values_have_different_texts() -> None:
    texts = [canonical(value) for value in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1}, MappingProxyType({"a": 1})),
        ({1, 2, 3}, {3, 2, 1}),
        (float("nan"), float("nan")),
        (torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 3], [2, 4]]).T),
        (np.array([[1, 2], [3, 4]]), np.asfortranarray([[1, 2], [3, 4]])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])[:2]),
    ],
)
def test_equal_values_have_one_text_in_any_order_and_layout(a: object, b: object) -> None:
    assert canonical(a) == canonical(b)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_texts_are_equal_only_where_values_and_types_are(a: object, b: object) -> None:
    if canonical(a) == canonical(b):
        assert type(a) is type(b)
        assert a == b or repr(a) == repr(b)  # a NaN equals nothing, itself included


Point = namedtuple("Point", "x y")


class Shout(str):
    """A string of another type, which may carry anything."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        SimpleNamespace(a=1),
        lambda: None,
        Size,
        Point(1, 2),
        Shout("a"),
        bytearray(b"a"),
        np.array([object()]),
        1 + 2j,
        [1, {"a": object()}],
    ],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="nested more than"):
        canonical(loop)
