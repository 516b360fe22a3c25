"""Captures and proves the graphs of a vision tower, and says why there are none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firstlight.config import EngineConfig
from firstlight.engine.encoder_graphs.proof import EncoderProof, EncoderProver
from firstlight.engine.encoder_graphs.rows import GraphRows
from firstlight.engine.encoder_graphs.slots import slot_of, unnamed
from firstlight.errors import CaptureError, FirstlightError
from firstlight.graphs import (
    Arena,
    BatchTimes,
    BucketState,
    BucketTable,
    CaptureBackend,
    CostCurve,
    Extent,
    MeasuredCost,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
)
from firstlight.graphs.accounting import Bytes, Kind, Ledger, Seconds
from firstlight.graphs.encoder import EncoderRunner
from firstlight.graphs.proof import ProofLevel
from firstlight.models.adapter import TOWER_ERRORS, Adapter
from firstlight.models.tower import Per, Tower

MOST_SEGMENTS = 64
"""Pictures and frames that one replay takes."""

_LOG = logging.getLogger("firstlight.engine")


@dataclass(frozen=True, slots=True)
class EncoderGraphs:
    """What became of the encoder's graphs.

    Attributes:
        why: why there are none; empty where there are.
        rows: encodes through them; None where there are none.
        warm_seconds: that the first picture through the tower took, if there was one.
    """

    why: str = ""
    rows: GraphRows | None = None
    unit: str = ""
    proofs: Mapping[int, EncoderProof] = field(default_factory=dict)
    warm_seconds: float | None = None

    def added_to(self, ledger: Ledger) -> Ledger:
        """A ledger with these graphs' bytes and seconds."""
        if self.rows is None:
            return ledger
        runner = self.rows.runner
        slots = [Bytes(Kind.SLOT, s.name, s.bytes) for s in runner.registry.describe()]
        graphs = [Bytes(Kind.GRAPH, f"encoder {n}", g.bytes) for n, g in runner.graphs.items()]
        seconds = sum(graph.seconds for graph in runner.graphs.values())
        seconds += sum(proof.seconds for proof in self.proofs.values())
        spent = Seconds("encoder graphs and their proofs", seconds)
        return Ledger((*ledger.bytes, *slots, *graphs), (*ledger.seconds, spent))

    def describe(self) -> dict[str, Any]:
        """For reports, ready for JSON."""
        if self.rows is None:
            return {"graphs": False, "why": self.why}
        runner = self.rows.runner
        return {
            "graphs": True,
            "why": "",
            "unit": self.unit,
            "most_segments": runner.most_segments,
            "budgets": [self._budget(runner, size) for size in runner.budgets.sizes],
            "slots": [
                {"name": s.name, "shape": list(s.shape), "dtype": s.dtype, "bytes": s.bytes}
                for s in runner.registry.describe()
            ],
            "calls": {reason.value: n for reason, n in runner.counts().items()},
            "replays": {str(budget): n for budget, n in sorted(runner.replays().items())},
        }

    def _budget(self, runner: EncoderRunner, size: int) -> dict[str, Any]:
        graph, proof = runner.graphs.get(size), self.proofs.get(size)
        return {
            "size": size,
            "state": runner.budgets.state(size).value,
            "bytes": 0 if graph is None else graph.bytes,
            "seconds": 0.0 if graph is None else round(graph.seconds, 4),
            "proof": "-" if proof is None else proof.summary,
            "replay_ms": 0.0 if proof is None else round(proof.replay_ms, 3),
            "eager_ms": 0.0 if proof is None else round(proof.eager_ms, 3),
            "why": runner.budgets.why(size),
        }


def open_encoder_graphs(
    config: EngineConfig, adapter: Adapter, backend: CaptureBackend
) -> EncoderGraphs:
    """Capture the tower by budgets, largest first, where that is asked for and can be done.

    A budget serves after its proof alone; where none does, the adapter encodes as it would without
    graphs.
    """
    why = _reason_against(config)
    if why:
        return EncoderGraphs(why)
    tower = adapter.tower()
    if isinstance(tower, str):
        return _none(tower)
    sizes = config.encoder_budgets or tower.budgets
    cost = MeasuredCost() if config.padding_cost == "measured" else PaddingIsFree()
    try:
        runner = _runner(adapter, tower, sizes, backend, cost)
        proofs = _captured(adapter, tower, runner, ProofLevel(config.proof))
    except (FirstlightError, *TOWER_ERRORS) as error:
        return _none(f"its tower cannot be captured: {error}")
    if isinstance(cost, MeasuredCost):
        _settle(cost, proofs)
    return EncoderGraphs("", GraphRows(adapter, tower, runner), tower.unit, proofs)


def _reason_against(config: EngineConfig) -> str:
    if config.encoder_graphs == "off":
        return "encoder_graphs = off"
    if config.graphs_off:
        return "graphs are turned off"
    if config.sanitize:
        return "the sanitizer looks at the decoder's graphs alone"
    return ""


def _none(why: str) -> EncoderGraphs:
    _LOG.warning("no encoder graphs: %s", why)
    return EncoderGraphs(why)


def _runner(
    adapter: Adapter,
    tower: Tower,
    sizes: tuple[int, ...],
    backend: CaptureBackend,
    cost: MeasuredCost | PaddingIsFree,
) -> EncoderRunner:
    segments = any(given.per is Per.SEGMENT for given in tower.inputs)
    most = min(sizes[-1], MOST_SEGMENTS) if segments else sizes[-1]
    registry = SlotRegistry(Extent(sizes[-1], most), Arena(adapter.device))
    for given in tower.inputs:
        registry.register(slot_of(given))
    registry.allocate()
    owned = Ownership()
    owned.add_module(adapter.model)
    return EncoderRunner(
        registry=registry,
        budgets=BucketTable(sizes),
        backend=backend,
        body=lambda views: tower.body(unnamed(dict(views))),
        owned=owned,
        cost=cost,
    )


def _captured(
    adapter: Adapter, tower: Tower, runner: EncoderRunner, level: ProofLevel
) -> dict[int, EncoderProof]:
    """Every budget captured and proven; one that fails stays out with its reason.

    Raises:
        CaptureError: the first one cannot be captured, so that none can.
    """
    full, on_cpu = level is ProofLevel.FULL, adapter.device.type == "cpu"
    prover = EncoderProver(adapter, tower, runner, full=full, same_bits=on_cpu)
    proofs: dict[int, EncoderProof] = {}
    for size in reversed(runner.budgets.sizes):
        try:
            runner.capture(size)
        except (CaptureError, RuntimeError, MemoryError):
            if not runner.graphs:
                raise
            continue
        if level is ProofLevel.OFF:
            runner.budgets.mark(size, BucketState.READY)
            continue
        proof = proofs[size] = prover.prove(size)
        state = BucketState.READY if proof.finding is None else BucketState.QUARANTINED
        runner.budgets.mark(size, state, proof.finding or "")
    return proofs


def _settle(cost: MeasuredCost, proofs: Mapping[int, EncoderProof]) -> None:
    passed = {size: proof for size, proof in proofs.items() if proof.finding is None}
    if passed:
        eager = CostCurve.through({size: proof.eager_ms for size, proof in passed.items()})
        replay = CostCurve.through({size: proof.replay_ms for size, proof in passed.items()})
        cost.settle(BatchTimes(eager, replay))
