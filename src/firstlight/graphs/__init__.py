"""Static buffers, captured graphs, and the decision between graph and eager.

Usable with any decoder that runs over static buffers: declare its memory with
:class:`Ownership`, give :class:`TapeBackend` a function over the buffers, and replay. The parts
above -- slots, buckets, :class:`GraphRunner` -- serve bodies with an input contract.
"""

from __future__ import annotations

from firstlight.graphs.arena import Arena, ScratchArena
from firstlight.graphs.backend import CaptureBackend, Graph, Piece
from firstlight.graphs.backends.eager import EagerBackend
from firstlight.graphs.backends.tape import TapeBackend, TapeGraph
from firstlight.graphs.body import Body, BodyInputs
from firstlight.graphs.bucket import (
    BucketState,
    BucketTable,
    default_ladder,
    parse_ladder,
    request_ladder,
)
from firstlight.graphs.decision import CostModel, Decider, DecisionCounter, PaddingIsFree
from firstlight.graphs.ownership import Ownership
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.runner import (
    BucketFailure,
    BucketReport,
    CaptureReport,
    GraphRunner,
    dummy_lengths,
)
from firstlight.graphs.slot import Axis, Dim, Extent, Meaning, Padding, SlotInfo, SlotSpec
from firstlight.graphs.slots import (
    attention_slots,
    body_inputs,
    body_slots,
    live_boundary,
    live_tokens_slot,
    padded_tokens_slot,
    phase_extent,
    row_slots,
)

__all__ = [
    "Arena",
    "Axis",
    "Body",
    "BodyInputs",
    "BucketFailure",
    "BucketReport",
    "BucketState",
    "BucketTable",
    "CaptureBackend",
    "CaptureReport",
    "CostModel",
    "Decider",
    "DecisionCounter",
    "Dim",
    "EagerBackend",
    "Extent",
    "Graph",
    "GraphRunner",
    "Meaning",
    "Ownership",
    "Padding",
    "PaddingIsFree",
    "Piece",
    "ScratchArena",
    "SlotInfo",
    "SlotRegistry",
    "SlotSpec",
    "TapeBackend",
    "TapeGraph",
    "attention_slots",
    "body_inputs",
    "body_slots",
    "default_ladder",
    "dummy_lengths",
    "live_boundary",
    "live_tokens_slot",
    "padded_tokens_slot",
    "parse_ladder",
    "phase_extent",
    "request_ladder",
    "row_slots",
]
