"""What proofs cost against the captures they follow, in seconds of a start.

::

    python -m benchmarks.proof_cost [MODEL ...] [--rounds 5] [--threads 1] [--full]

Starts each model with ``proof="quick"`` (with ``--full`` also ``"full"``) and the default buckets,
for one request at a time and for the default number, and prints the median over the rounds of
proof seconds, capture seconds and their ratio. Every start is a process of its own, so that each
one pays for its first calls. Exit status 1 if a ratio of the quick level exceeds the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.machine import about

LIMIT = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one setting; ``ratio`` is the median of the rounds' own ratios."""

    model: str
    level: str
    max_num_seqs: int
    buckets: int
    capture_s: float
    proof_s: float
    ratio: float


def start(model: str, level: str, seqs: int, threads: int) -> tuple[int, float, float]:
    """Buckets, capture seconds and proof seconds of one start in this process."""
    from firstlight import LLM

    llm = LLM(model, proof=level, max_num_seqs=seqs, threads=threads)
    reports = [bucket for report in llm.parts.captures.values() for bucket in report.buckets]
    proofs = sum(report.proof.seconds for report in reports if report.proof is not None)
    return len(reports), sum(report.seconds for report in reports), proofs


def measure(model: str, level: str, seqs: int, *, rounds: int, threads: int) -> Cost:
    """Medians over processes that start one after another."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, "-m", "benchmarks.proof_cost", model, "--worker"]
        command += [level, str(seqs), "--threads", str(threads)]
        call = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(call.stdout.splitlines()[-1]))
    buckets = int(found[0][0])
    captures, proofs = [f[1] for f in found], [f[2] for f in found]
    ratios = [p / c for c, p in zip(captures, proofs, strict=True)]
    middle = statistics.median
    return Cost(model, level, seqs, buckets, middle(captures), middle(proofs), middle(ratios))


def costs(models: list[str], *, full: bool, rounds: int, threads: int) -> Iterator[Cost]:
    """Every model at every level, for one request and for the default of eight."""
    for model in models:
        for level in ("quick", "full") if full else ("quick",):
            for seqs in (1, 8):
                yield measure(model, level, seqs, rounds=rounds, threads=threads)


def main() -> int:
    """Print the figures as JSON; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["firstlight-demo"], metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--worker", nargs=2, metavar=("LEVEL", "SEQS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        level, seqs = given.worker
        print(json.dumps(start(given.models[0], level, int(seqs), given.threads)))
        return 0
    rows = []
    for cost in costs(given.models, full=given.full, rounds=given.rounds, threads=given.threads):
        rows.append(asdict(cost))
        print(json.dumps(rows[-1]), file=sys.stderr)
    print(json.dumps({"about": about(), "limit": LIMIT, "costs": rows}, indent=1))
    return int(any(row["level"] == "quick" and row["ratio"] > LIMIT for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
