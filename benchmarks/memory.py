"""Peak of resident memory over what an engine says it needs: weights, KV pool and buffers.

::

    python -m benchmarks.memory [--threads 1] [--json benchmarks/memory.json]

Every case is a process of its own, as the command line makes one: started, asked eight texts at
once, and then with every page of its KV pool written to, which is the most that it comes to.
"""

from __future__ import annotations

from firstlight.config import wait_briefly

wait_briefly()  # before torch is loaded, as the command line does

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks.smollm2 import gguf_path  # noqa: E402
from firstlight import SamplingParams  # noqa: E402
from firstlight.cli.quick_start import quick_start  # noqa: E402
from firstlight.config import BUNDLED_MODEL  # noqa: E402

LEAST = 1.2
"""Peak over weights, KV and buffers, at most."""

PROMPTS, WORDS, TOKENS = 8, 300, 32


@dataclass(frozen=True, slots=True)
class Case:
    """An engine: its model, by name and where it lies, and what is set."""

    name: str
    model: str
    dtype: str
    quantization: str = "none"


def cases() -> list[Case]:
    """The bundled model, and SmolLM2 where its package is installed."""
    found = [Case("bundled", BUNDLED_MODEL, "float32"), Case("bundled", BUNDLED_MODEL, "bfloat16")]
    path = gguf_path()
    if path is not None:
        found.append(Case("SmolLM2-135M", str(path), "bfloat16"))
        found.append(Case("SmolLM2-135M", str(path), "bfloat16", "int4"))
    return found


def measure(case: Case, threads: int) -> dict[str, Any]:
    """Bytes of this process, which has done nothing else before; JSON-ready."""
    with quick_start():
        from firstlight import LLM

        llm = LLM(case.model, dtype=case.dtype, quantization=case.quantization, threads=threads)
    start = _resident(llm)
    texts = [f"{i}: " + "the quick brown fox " * (WORDS // 4) for i in range(PROMPTS)]
    llm.generate(texts, SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))
    answers = _resident(llm)
    pool = llm.parts.pool
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(0)
    full = _resident(llm)
    stated = start["weights_bytes"] + start["buffers_bytes"] + pool.nbytes
    return {
        **asdict(case),
        "model": Path(case.model).name,
        "kv_bytes": pool.nbytes,
        "start": start,
        "answers": answers,
        "full": full,
        "stated_bytes": stated,
        "ratio": answers["peak_bytes"] / stated,
        "ratio_full": full["peak_bytes"] / stated,
    }


def _resident(llm: Any) -> dict[str, int]:
    found: dict[str, int] | None = llm.inspect()["resident"]
    if found is None:
        raise SystemExit("this system does not say what is resident")
    return found


def _apart(case: Case, threads: int) -> dict[str, Any]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--threads", str(threads)]
    command += ["--one", json.dumps(asdict(case))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case; 1 if one that was asked texts is above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(measure(Case(**json.loads(options.one)), options.threads)))
        return 0
    rows = [_apart(case, options.threads) for case in cases()]
    for row in rows:
        what = f"{row['name']} {row['dtype']} {row['quantization']}"
        print(f"{what:32} {row['ratio']:.2f}, pool full {row['ratio_full']:.2f}")
    if options.json is not None:
        from benchmarks.machine import about

        told = {"about": {**about(), "threads": options.threads}, "limit": LEAST, "rows": rows}
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    return int(any(row["ratio"] > LEAST for row in rows))


if __name__ == "__main__":
    sys.exit(main())
