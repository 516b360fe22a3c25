"""Proof that a captured bucket computes what the body computes, before it serves anybody.

Usable with any body over slots: give :class:`Prover` the input contract and a
:class:`ProofMemory`, and hand it to :class:`~firstlight.graphs.GraphRunner`, or call
:meth:`Prover.prove` with a :class:`Subject` of your own.
"""

from __future__ import annotations

from firstlight.graphs.proof.bench import Bench, Outcome, Subject
from firstlight.graphs.proof.cases import Case, Limits, Media, mixed_case, plan_cases
from firstlight.graphs.proof.contents import Batch, Contents
from firstlight.graphs.proof.memory import NoMemory, Placed, ProofMemory, SidedMemory
from firstlight.graphs.proof.prover import Prover, Tolerance
from firstlight.graphs.proof.report import BucketProof, Finding, ProofLevel, ProofReport

__all__ = [
    "Batch",
    "Bench",
    "BucketProof",
    "Case",
    "Contents",
    "Finding",
    "Limits",
    "Media",
    "NoMemory",
    "Outcome",
    "Placed",
    "ProofLevel",
    "ProofMemory",
    "ProofReport",
    "Prover",
    "SidedMemory",
    "Subject",
    "Tolerance",
    "mixed_case",
    "plan_cases",
]
