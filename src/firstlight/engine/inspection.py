"""What an engine is and does, as JSON-ready values."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict
from typing import Any

import torch

from firstlight.contract import InputContract
from firstlight.core.reason import Decision, Phase
from firstlight.engine.accounting import describe_bytes, describe_seconds
from firstlight.engine.build import Parts
from firstlight.engine.costs import describe_costs, describe_waste
from firstlight.engine.gpu import describe as describe_gpu
from firstlight.engine.resident import resident
from firstlight.graphs import BucketReport, GraphRunner
from firstlight.graphs.accounting import Ledger


def describe(parts: Parts) -> dict[str, Any]:
    """Contract, slots, buckets, attention, memory and what would run eager, with the reason."""
    adapter = parts.model.adapter
    runners, ledger = parts.runners, parts.ledger
    return {
        "model": parts.model.name,
        "architecture": adapter.architecture,
        "adapter": type(adapter).__name__,
        "dtype": str(adapter.dtype).removeprefix("torch."),
        "device": str(adapter.device),
        "threads": torch.get_num_threads(),
        **_contract(adapter.contract),
        "slots": [
            {"phase": phase.value, **asdict(info)}
            for phase, runner in runners.items()
            for info in runner.registry.describe()
        ],
        "buckets": {phase.value: _buckets(parts, phase, ledger) for phase in runners},
        "backend": "eager" if parts.config.graphs_off else runners[Phase.DECODE].backend.name,
        "gpu": describe_gpu(parts.gpu),
        "sanitizer": _sanitizer(parts),
        "kernels": parts.native.describe(),
        "attention": _attention(parts),
        "memory": {
            **asdict(parts.memory),
            "kv_bytes": parts.pool.nbytes,
            "prefix_cache": parts.config.prefix_cache,
            "encoder_cache_bytes": parts.encoder_cache.capacity_bytes,
        },
        "use": {
            "pages": asdict(parts.kv.usage()),
            "artifacts": None if parts.pipeline is None else asdict(parts.pipeline.usage()),
            "encoder": asdict(parts.encoder.usage()),
            "scheduler": asdict(parts.scheduler.stats),
        },
        "fused": None if parts.fused is None else asdict(parts.fused),
        "encoder_graphs": parts.encoder_graphs.describe(),
        "padding_cost": describe_costs(parts.costs),
        "waste": describe_waste(
            tuple(runners[Phase.PREFILL].buckets.sizes), parts.costs.get(Phase.PREFILL)
        ),
        "bytes": describe_bytes(ledger),
        "resident": None if (found := resident(parts)) is None else found.describe(),
        "seconds": describe_seconds(ledger),
        "eager": {phase.value: _eager(runner) for phase, runner in runners.items()},
        "unread_inputs": _unread(parts),
        "decisions": _decisions(runners[Phase.DECODE]),
    }


def _sanitizer(parts: Parts) -> dict[str, Any] | None:
    """How much the sanitizer has found, and what it cannot look at; None where it is off."""
    report = parts.findings
    if report is None:
        return None
    return {"findings": len(report), "not_looked_at": list(report.not_looked_at)}


def _attention(parts: Parts) -> str:
    """Which kernel attends, and why not another."""
    if parts.gpu is None:
        return str(parts.native.attention(parts.pool))
    return " · ".join(map(str, parts.gpu.attention(parts.model)))


def _unread(parts: Parts) -> list[str] | None:
    """Inputs that no output depends on; None where nothing was proven, so that nobody knows."""
    proofs = [report.proof for report in parts.captures.values() if report.proof is not None]
    return [str(finding) for proof in proofs for finding in proof.unread] if proofs else None


def _contract(contract: InputContract) -> dict[str, Any]:
    return {
        "input_embeds_hidden_size": contract.input_embeds_hidden_size,
        "declared": contract.declared,
        "declared_by": contract.declared_by,
        "segments": [asdict(segment) for segment in contract.segments],
        "planes": [
            {"name": p.name, "shape": list(p.shape), "dtype": p.dtype.value, "index": p.index}
            for p in contract.planes
        ],
        "hidden_size": contract.hidden_size,
        "hc_hidden_size": contract.hc_hidden_size,
        "position_rank": contract.position_rank,
        "mask": contract.mask.value,
    }


def _buckets(parts: Parts, phase: Phase, ledger: Ledger) -> list[dict[str, Any]]:
    table = parts.runners[phase].buckets
    captured = {report.bucket: report for report in parts.captures[phase].buckets}
    rows = []
    for size in table.sizes:
        report = captured.get(size)
        rows.append(
            {
                "size": size,
                "state": table.state(size).value,
                "bytes": report.bytes if report else 0,
                "seconds": round(report.seconds, 4) if report else 0.0,
                "seconds_by_part": _rounded(ledger.seconds_of(phase, size)),
                "bytes_by_kind": {k.value: n for k, n in ledger.bytes_of(phase, size).items()},
                "ops": report.ops if report else 0,
                "proof": _proof(report),
                "why": table.why(size),
            }
        )
    return rows


def _proof(report: BucketReport | None) -> str:
    """The verdict and what it rests on, e.g. ``quick: 1 case passed``."""
    if report is None or report.proof is None:
        return "off" if report else "-"
    return f"{report.proof.level.value}: {report.proof.summary}"


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {part: round(value, 4) for part, value in seconds.items()}


def _eager(runner: GraphRunner) -> list[dict[str, str]]:
    """The batches that would run eager now, by their rows."""
    largest, capacity = runner.buckets.largest, runner.registry.capacity
    found = []
    low = 1
    for size in runner.buckets.sizes:
        high = _last_eager(runner, low, size)
        if high >= low:
            when = f"{low} to {high} rows" if high > low else f"{low} rows"
            found.append(_refusal(runner, high, when))
        low = size + 1
    if largest < capacity.tokens:
        found.append(_refusal(runner, largest + 1, f"more than {largest} rows"))
    return found


def _last_eager(runner: GraphRunner, low: int, size: int) -> int:
    """The longest batch of ``low`` to ``size`` rows that runs eager; ``low - 1`` if none does.

    Whatever refuses the bucket as such refuses all of them; its padding is dear for the shorter.
    """
    return (
        low
        - 1
        + bisect_left(
            range(low, size + 1), True, key=lambda n: _decide(runner, n).bucket is not None
        )
    )


def _decide(runner: GraphRunner, rows: int) -> Decision:
    return runner.decide(runner.extent(rows), 1)


def _refusal(runner: GraphRunner, rows: int, when: str) -> dict[str, str]:
    decision = _decide(runner, rows)
    return {"when": when, "reason": decision.reason.value, "detail": decision.detail}


def _decisions(runner: GraphRunner) -> list[dict[str, Any]]:
    return [
        {"phase": phase.value, "reason": reason.value, "batches": n}
        for (phase, reason), n in runner.counter.counts().items()
        if n
    ]
