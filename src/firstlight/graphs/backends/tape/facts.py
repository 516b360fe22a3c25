"""What a recording must know of an operation, read from its schema and tags once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._ops import OpOverload

# They only name memory; what it holds before the first write is nobody's business.
_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
                 "new_empty_strided")
)  # fmt: skip
_INDEXING = frozenset({"aten::index", "aten::_unsafe_index"})
_INDEX_WRITES = frozenset({"aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Attributes:
    name: e.g. ``aten.mm.default``.
    allocates: it names memory and writes nothing.
    host_value: its argument was made from host numbers.
    moves_view: it changes a tensor's description in place and no data.
    indexes, writes_index: it takes index tensors, which may be masks.
    reads_host, dynamic, random: by its tags.
    written: position and name of each argument that it writes.
    """

    name: str
    allocates: bool
    host_value: bool
    moves_view: bool
    indexes: bool
    writes_index: bool
    reads_host: bool
    dynamic: bool
    random: bool
    written: tuple[tuple[int, str], ...]

    @property
    def suspicious(self) -> bool:
        """Whether its arguments decide if a graph can hold it."""
        return self.reads_host or self.dynamic or self.random or self.writes_index


def facts_of(func: OpOverload) -> OpFacts:
    """Read the schema and the tags of ``func``."""
    schema, tags = func._schema, func.tags
    written = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return OpFacts(
        name=str(func),
        allocates=schema.name in _ALLOCATIONS,
        host_value=schema.name == "aten::lift_fresh",
        moves_view=torch.Tag.inplace_view in tags,
        indexes=schema.name in _INDEXING,
        writes_index=schema.name in _INDEX_WRITES,
        reads_host=torch.Tag.data_dependent_output in tags,
        dynamic=torch.Tag.dynamic_output_shape in tags,
        random=torch.Tag.nondeterministic_seeded in tags,
        written=written,
    )
