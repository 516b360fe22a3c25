"""Proves what an engine has captured, at the full level, and says what was found."""

from __future__ import annotations

import time
from typing import Any

from firstlight.core.reason import Phase
from firstlight.engine.build import Parts, Progress
from firstlight.engine.gpu import tolerance_of
from firstlight.engine.merge_check import check_merge
from firstlight.engine.pool_memory import PoolMemory
from firstlight.errors import ConfigError
from firstlight.graphs import GraphRunner
from firstlight.graphs.proof import BucketProof, ProofLevel, ProofReport, Prover


def verify(parts: Parts, progress: Progress | None = None) -> dict[str, Any]:
    """Check the merge, then every captured bucket of both phases; JSON-ready.

    A bucket that fails is quarantined, one that passes is admitted, whatever was known before.

    Returns:
        ``rows``: one per bucket (phase, bucket, cases, worst, verdict, seconds); ``findings`` in
        full; ``passed``: nothing was found.

    Raises:
        ConfigError: graphs are turned off, so there is nothing to verify.
    """
    if not any(runner.buckets.sizes for runner in parts.runners.values()):
        raise ConfigError("there is nothing to verify: graphs are turned off")
    adapter = parts.model.adapter
    memory = PoolMemory(parts.pool, parts.kv, parts.memory, parts.placement)
    prover = Prover(
        adapter.contract, memory, level=ProofLevel.FULL, tolerance=tolerance_of(parts.gpu)
    )
    began = time.perf_counter()
    cases, wrong = check_merge(adapter)
    merge = {
        "phase": "merge", "bucket": None, "cases": cases, "worst": max((f.size for f in wrong),
        default=0.0), "worst_alone": None, "verdict": "failed" if wrong else "passed",
        "seconds": round(time.perf_counter() - began, 3),
    }  # fmt: skip
    rows: list[dict[str, Any]] = [merge]
    findings = [_finding("merge", None, str(finding)) for finding in wrong]
    for phase, runner in parts.runners.items():
        report = runner.prove(prover, _bar(phase, progress))
        rows += _rows(runner, report)
        findings += _findings(runner, report)
    return {
        "model": parts.model.name,
        "level": ProofLevel.FULL.value,
        "passed": not findings,
        "failed": sum(row["verdict"] != "passed" for row in rows),
        "rows": rows,
        "findings": findings,
    }


def proof_row(proof: BucketProof) -> dict[str, Any]:
    """One bucket's proof as JSON-ready values."""
    return {
        "cases": proof.cases,
        "worst": proof.worst,
        "worst_alone": proof.worst_alone,
        "verdict": "passed" if proof.passed else "failed",
        "seconds": round(proof.seconds, 3),
    }


def _rows(runner: GraphRunner, report: ProofReport) -> list[dict[str, Any]]:
    proofs = {proof.bucket: proof for proof in report.buckets}
    rows: list[dict[str, Any]] = []
    for size in runner.buckets.sizes:
        row: dict[str, Any] = {"phase": runner.phase.value, "bucket": size}
        if size in proofs:
            rows.append(row | proof_row(proofs[size]))
        else:
            absent = {"cases": 0, "worst": None, "worst_alone": None, "seconds": 0.0}
            rows.append(row | absent | {"verdict": "not captured"})
    return rows


def _findings(runner: GraphRunner, report: ProofReport) -> list[dict[str, Any]]:
    phase = runner.phase.value
    found = [
        _finding(phase, proof.bucket, str(finding))
        for proof in report.buckets
        for finding in proof.findings
    ]
    found += [_finding(phase, None, str(finding)) for finding in report.unread]
    proven = {proof.bucket for proof in report.buckets}
    for size in runner.buckets.sizes:
        if size not in proven:
            found.append(_finding(phase, size, f"not captured: {runner.buckets.why(size)}"))
    return found


def _finding(phase: str, bucket: int | None, text: str) -> dict[str, Any]:
    return {"phase": phase, "bucket": bucket, "finding": text}


def _bar(phase: Phase, progress: Progress | None) -> Any:
    if progress is None:
        return None

    def forward(done: int, total: int, bucket: int) -> None:
        progress(phase, bucket, done, total)

    return forward
