"""What the sanitizer costs where it is off: an engine with it against one from which it is gone.

::

    python -m benchmarks.sanitizer_off [MODEL] [--rounds 15] [--threads 1]

Three processes load the same model: with ``sanitize=False``; with the sanitizer's modules replaced
by empty ones, so that none of it can run; and, for information, with ``sanitize=True``. They take
turns. A step is what the engine does between plan and hidden rows: decide, fill, merge, replay.
Exit status 1 if the median ratio of a step with the sanitizer off exceeds the limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from benchmarks.interleave import interleave
from benchmarks.row import Row, compare

LIMIT = 1.02  # what a quiet machine's medians still differ by between two equal processes
_GONE = ("firstlight.graphs.sanitizer", "firstlight.engine.sanitizing")


class Worker:
    """A process that holds one engine and times steps on request."""

    def __init__(self, kind: str, model: str | None, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.sanitizer_off", "--worker", kind]
        command += ["--threads", str(threads), *([model] if model else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.calls: dict[str, int] = self._ask("calls")

    def timed(self, phase: str) -> Callable[[], float]:
        """A call that returns the seconds of one step."""
        return lambda: float(self._ask(phase))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def rows(model: str | None, *, rounds: int, threads: int) -> Iterator[Row]:
    """Off against gone, and on against off, for both phases."""
    workers = {kind: Worker(kind, model, threads) for kind in ("off", "gone", "on")}
    try:
        for phase in ("prefill", "decode"):
            off, gone, on = (workers[kind].timed(phase) for kind in ("off", "gone", "on"))
            same = workers["off"].calls[phase] == workers["gone"].calls[phase]
            note = f"{workers['off'].calls[phase]} calls a replay, {'equal' if same else 'UNEQUAL'}"
            samples = interleave({"ours": off, "theirs": gone}, rounds=rounds, warmup=2)
            yield compare(f"{phase} step, sanitizer off / gone", samples, limit=LIMIT, note=note)
            samples = interleave({"ours": on, "theirs": off}, rounds=max(rounds // 5, 3))
            yield compare(f"{phase} step, sanitizer on / off", samples)
    finally:
        for worker in workers.values():
            worker.close()


def serve(kind: str, model: str | None, threads: int) -> None:
    """The worker's loop: one request a line, one JSON value back."""
    if kind == "gone":
        for name in _GONE:
            sys.modules[name] = _Empty(name)
    import torch

    from firstlight import LLM
    from firstlight.config import BUNDLED_MODEL
    from firstlight.core.reason import Phase

    torch.set_num_threads(threads)
    llm = LLM(
        model or BUNDLED_MODEL, sanitize=kind == "on", proof="off", max_num_seqs=2,
        prefill_buckets=(64,), decode_buckets=(1,), threads=threads, padding_cost="free",
    )  # fmt: skip
    steps = {phase.value: _step(llm, phase, kind) for phase in Phase}
    for line in sys.stdin:
        what = line.strip()
        if what == "calls":
            graphs = {phase.value: llm.parts.runners[phase].graphs for phase in Phase}
            answer: object = {
                phase: sum(piece.ops for piece in next(iter(held.values())).pieces)
                for phase, held in graphs.items()
            }
        else:
            answer = steps[what]()
        print(json.dumps(answer), flush=True)


def _step(llm: Any, phase: Any, kind: str) -> Callable[[], float]:
    """Mean seconds of a step of 50 rows (prefill) or one request (decode)."""
    import torch

    from firstlight.attention import RowsInMemory
    from firstlight.core.reason import Phase
    from firstlight.graphs import Extent
    from firstlight.memory.ids import VirtualPage

    runner, memory = llm.parts.runners[phase], llm.parts.memory
    n, start = (50, 0) if phase is Phase.PREFILL else (1, 50)
    pages = [VirtualPage(p) for p in range(1, 1 + -(-(start + n) // memory.page_size))]
    values = llm.parts.placement.values([RowsInMemory(pages, start, start + n)])
    contract = llm.parts.model.adapter.contract
    positions = torch.arange(start, start + n).expand(contract.position_rank, n)
    rows = torch.randn(n, contract.input_embeds_hidden_size).to(llm.parts.model.adapter.dtype)
    repeats = 1 if kind == "on" else 10

    def step() -> float:
        with torch.inference_mode():
            began = time.perf_counter()
            for _ in range(repeats):
                live = Extent(n, 1)
                decision = runner.decide(live, start + n)
                runner.fill({**values, "positions": positions}, live, decision)
                runner.embeds(n).copy_(rows)
                runner.run(decision)
            return (time.perf_counter() - began) / repeats

    return step


class _Empty(ModuleType):
    """A module in which every name is a class of its own that does nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one JSON object a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", help="default: the bundled model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", choices=("off", "gone", "on"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.worker, options.model, options.threads)
        return 0
    failed = False
    for row in rows(options.model, rounds=options.rounds, threads=options.threads):
        print(json.dumps(row.as_dict()), flush=True)
        failed |= row.reached is False or "UNEQUAL" in row.note
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
