"""Decodes damaged files in a process of its own, whose time and memory are watched.

``run`` starts it; ``python -m tests.media.fuzz KINDS FIRST LAST`` is the child. For each seed it
prints one line of JSON before the work and one after it, so that a crash names its seed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from firstlight.errors import MediaError
from firstlight.media import decode_image
from firstlight.media.source import load_image
from tests.media.mutations import mutated_file, mutated_url, samples
from tests.media.peaks import reset_peak, resident

LIMIT_S = 2.0
"""Processor time of one picture."""
LIMIT_MIB = 256
"""Resident memory that decoding one picture may add to the process."""
_HANG_S = 20
"""Real time of one picture; other programs may run beside this one."""
CHILD = (sys.executable, "-m", "tests.media.fuzz")


@dataclass
class Result:
    """What became of a run of seeds.

    Attributes:
        outcomes: how many ended how: ``image``, or ``error``.
        faults: what must not happen, each with its seed.
        slowest: processor seconds and seed.
        largest: MiB and seed.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[float, str] = (0.0, "")


def run(kinds: Sequence[str], seeds: range, command: Sequence[str] = CHILD) -> Result:
    """Decode the ``file`` or ``url`` of each seed in child processes; a dead one is a fault.

    Args:
        command: starts a child; it gets the kinds, joined by commas, and the seeds' ends.
    """
    result = Result()
    first = seeds.start
    while first < seeds.stop:
        child = subprocess.run(
            [*command, ",".join(kinds), str(first), str(seeds.stop)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        last = _collect(child.stdout.decode(), result)
        if child.returncode == 0:
            break
        told = child.stderr.decode(errors="replace")[-400:]
        result.faults.append(
            f"{max(last, first)}: the process ended with {child.returncode}: {told}"
        )
        if last < first:
            break  # it did not even begin
        first = last + 1
    return result


def _collect(lines: str, result: Result) -> int:
    """Adds a child's lines; returns the last seed that it began."""
    last = -1
    for line in lines.splitlines():
        entry = json.loads(line)
        last = entry["seed"]
        if "outcome" not in entry:
            continue
        result.outcomes[entry["outcome"]] += 1
        name = f"{entry['seed']} ({entry['name']})"
        result.slowest = max(result.slowest, (entry["seconds"], name))
        result.largest = max(result.largest, (entry["mib"], name))
        if entry["fault"]:
            result.faults.append(f"{name}: {entry['fault']}")
    return last


# -- the child ---------------------------------------------------------------------------------


def main(kinds: Sequence[str], first: int, last: int) -> None:
    """Decode and report; any exception but MediaError is a fault and ends nothing."""
    for _, data in samples():  # what is loaded once is not of the first picture's account
        decode_image(data)
    signal.signal(signal.SIGALRM, _hanging)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for seed in range(first, last):
        for kind in kinds:
            print(json.dumps({"seed": seed}), flush=True)
            name, source = mutated_file(seed) if kind == "file" else ("URL", mutated_url(seed))
            done = tried(partial(_decoded, source))
            print(json.dumps({"seed": seed, "name": name, **done}), flush=True)


def _decoded(source: bytes | str) -> None:
    decode_image(load_image(source))


def tried(
    action: Callable[[], object], limit_s: float = LIMIT_S, limit_mib: float = LIMIT_MIB
) -> dict[str, object]:
    """How an action ended, what it took, and what was wrong with that."""
    before = reset_peak()
    started = time.process_time()
    signal.alarm(_HANG_S)
    outcome, fault = "image", ""
    try:
        action()
    except MediaError as error:
        outcome = "error"
        if len(str(error)) > 1000:
            fault = f"an error of {len(str(error))} characters"
    except BaseException as error:
        outcome = "fault"
        fault = f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
    seconds = time.process_time() - started
    mib = (resident("VmHWM") - before) / 1024
    if mib > limit_mib:
        fault = fault or f"{mib:.0f} MiB"
    if seconds > limit_s:
        fault = fault or f"{seconds:.1f} s of processor time"
    return {"outcome": outcome, "seconds": seconds, "mib": mib, "fault": fault}


def _hanging(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"not done after {_HANG_S} s")


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]))
