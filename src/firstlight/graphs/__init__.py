"""Static buffers, captured graphs, and the decision between graph and eager.

Usable with any decoder that runs over static buffers: declare its memory with
:class:`Ownership`, give :class:`TapeBackend` a function over the buffers, and replay. The parts
above -- slots, buckets, :class:`GraphRunner` -- serve bodies with an input contract. Proofs are in
:mod:`firstlight.graphs.proof`, the sanitizer in :mod:`firstlight.graphs.sanitizer`.
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
from firstlight.graphs.cost import BatchTimes, CostCurve, MeasuredCost
from firstlight.graphs.decision import CostModel, Decider, DecisionCounter, PaddingIsFree
from firstlight.graphs.lengths import Lengths
from firstlight.graphs.ownership import Ownership
from firstlight.graphs.planner import Budget, CaptureCosts, Plan, plan_buckets
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
    AttentionNames,
    attention_names,
    attention_slots,
    body_inputs,
    body_slots,
    live_boundary,
    live_tokens_slot,
    padded_tokens_slot,
    phase_extent,
    row_slots,
)
from firstlight.graphs.waste import Waste, expected_waste

__all__ = [
    "Arena",
    "AttentionNames",
    "Axis",
    "BatchTimes",
    "Body",
    "BodyInputs",
    "BucketFailure",
    "BucketReport",
    "BucketState",
    "BucketTable",
    "Budget",
    "CaptureBackend",
    "CaptureCosts",
    "CaptureReport",
    "CostCurve",
    "CostModel",
    "Decider",
    "DecisionCounter",
    "Dim",
    "EagerBackend",
    "Extent",
    "Graph",
    "GraphRunner",
    "Lengths",
    "Meaning",
    "MeasuredCost",
    "Ownership",
    "Padding",
    "PaddingIsFree",
    "Piece",
    "Plan",
    "ScratchArena",
    "SlotInfo",
    "SlotRegistry",
    "SlotSpec",
    "TapeBackend",
    "TapeGraph",
    "Waste",
    "attention_names",
    "attention_slots",
    "body_inputs",
    "body_slots",
    "default_ladder",
    "dummy_lengths",
    "expected_waste",
    "live_boundary",
    "live_tokens_slot",
    "padded_tokens_slot",
    "parse_ladder",
    "phase_extent",
    "plan_buckets",
    "request_ladder",
    "row_slots",
]
