"""Equal bits on any number of threads, callers that come at once, forks, ends of processes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from firstlight.native import Kernels, WeightFormat, open_kernels
from firstlight.native.calls import add_call, linear_call, rms_norm_call
from firstlight.native.instruction import Instruction
from tests.native.processes import run_script

CAPACITY = 1 << 14
TASKS = Path("/proc/self/task")


def layers(kernels: Kernels, rows: int, n: int = 6) -> tuple[list[Instruction], Tensor]:
    """Instructions that each read what the one before wrote, and the last result."""
    g = torch.Generator().manual_seed(5)
    x, made = torch.randn(rows, 64, generator=g), list[Instruction]()
    weight = kernels.pack(torch.randn(64, 64, generator=g) / 8, WeightFormat.INT4)
    scale = torch.ones(64)
    for _ in range(n):
        wide, normed, total = (torch.empty(rows, 64) for _ in range(3))
        made.append(linear_call(x, weight.data, None, int(weight.format), wide))
        made.append(rms_norm_call(wide, scale, 1e-5, False, normed))
        added = add_call(x, normed, total)
        assert added is not None
        made.append(added)
        x = total
    return made, x


def chain(length: int) -> tuple[list[Instruction], Tensor]:
    """``length`` additions of one, each to the sum of the one before."""
    one, x, made = torch.ones(9, 3), torch.zeros(9, 3), list[Instruction]()
    for _ in range(length):
        added = add_call(x, one, x)
        assert added is not None
        made.append(added)
    return made, x


def in_process(script: str, *arguments: str) -> str:
    """What a script printed; fails if it fails, or hangs."""
    done = run_script(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("rows", [1, 9, 70])
def test_one_two_and_four_threads_give_equal_bits_each_time(library: Path, rows: int) -> None:
    results = []
    for threads in (1, 2, 4):
        kernels = Kernels(library, threads)
        made, out = layers(kernels, rows)
        run = kernels.program(made)
        for _ in range(40):
            out.fill_(9.0)
            run()
            results.append(out.clone())
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("length", [0, 1, CAPACITY - 1, CAPACITY, CAPACITY + 1, 3 * CAPACITY + 5])
def test_programs_of_any_length_run_whole_and_in_order(library: Path, length: int) -> None:
    kernels = Kernels(library, 2)
    made, x = chain(length)
    kernels.program(made)()
    assert (x == length).all()
    if length:
        kernels.run(*made)
        assert (x == 2 * length).all()


def test_callers_from_several_threads_take_turns(library: Path) -> None:
    kernels = Kernels(library, 2)
    made, want = layers(kernels, 9)
    kernels.program(made)()
    programs = [layers(kernels, 9) for _ in range(4)]

    def run_often(index: int) -> bool:
        instructions, out = programs[index]
        run = kernels.program(instructions)
        for _ in range(50):
            run()
        return torch.equal(out, want)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run_often, range(4)))


def test_several_teams_run_at_once(library: Path) -> None:
    teams = [Kernels(library, 3) for _ in range(4)]
    made, want = layers(teams[0], 70)
    teams[0].program(made)()
    work = [layers(team, 70) for team in teams]

    def run_often(index: int) -> bool:
        run = teams[index].program(work[index][0])
        for _ in range(20):
            run()
        return torch.equal(work[index][1], want)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run_often, range(4)))


def test_a_team_changes_its_size_between_programs_without_changing_results(library: Path) -> None:
    kernels = Kernels(library, 1)
    made, out = layers(kernels, 70)
    run = kernels.program(made)
    run()
    want = out.clone()
    for threads in (4, 1, 2, 3, 1):
        kernels.resize(threads)
        assert kernels.threads == threads
        out.fill_(9.0)
        run()
        assert torch.equal(out, want)


def workers() -> set[str]:
    """The ids of this process's threads that work for kernels; other threads come and go."""
    found = set[str]()
    for path in TASKS.glob("*/comm"):
        with suppress(OSError):  # it ended since it was listed
            if path.read_text() == "firstlight\n":
                found.add(path.parent.name)
    return found


@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are told apart in /proc")
def test_threads_end_with_their_kernels_and_programs(library: Path) -> None:
    others = workers()
    kernels = Kernels(library, 4)
    run: Callable[[], None] | None = kernels.program(chain(3)[0])
    assert run is not None
    run()
    own = workers() - others
    assert len(own) == 3
    del kernels
    gc.collect()
    run()
    assert own <= workers()
    run = None
    gc.collect()
    assert not own & workers()


def test_the_process_has_one_set_of_kernels_that_follows_torchs_threads(
    kernels: Kernels, tmp_path: Path
) -> None:
    torch.set_num_threads(2)
    try:
        assert open_kernels(tmp_path) is kernels
        assert kernels.threads == 2
    finally:
        torch.set_num_threads(1)
    assert open_kernels(None).threads == 1
    assert not list(tmp_path.iterdir())


PRELUDE = """
import os, sys, threading, time, torch
from pathlib import Path
from firstlight.native.kernels import Kernels
from tests.native.test_threads import layers
torch.set_num_threads(1)
kernels = Kernels(Path(sys.argv[1]), 3)
made, out = layers(kernels, 70)
run = kernels.program(made)
run()
want = out.clone()
"""

FORK = """
stop = False
def busy():
    own, _ = layers(kernels, 70)
    other = kernels.program(own)
    while not stop:
        other()
thread = threading.Thread(target=busy)
thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        out.fill_(9.0)
        run()
        good = torch.equal(out, want) and kernels.threads == 3
        kernels.resize(2)
        run()
        os._exit(0 if good and kernels.threads == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
thread.join()
run()
assert torch.equal(out, want)
print("good")
"""

EXIT_WHILE_BUSY = """
def busy():
    while True:
        run()
threading.Thread(target=busy, daemon=True).start()
time.sleep(0.2)
print("good")
"""


@pytest.mark.slow
def test_a_fork_amid_programs_leaves_both_processes_working(library: Path) -> None:
    assert in_process(PRELUDE + FORK, str(library)) == "good"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["print('good')", EXIT_WHILE_BUSY, "print('good'); del kernels"])
def test_a_process_ends_cleanly_with_threads_asleep_or_busy(library: Path, end: str) -> None:
    assert in_process(PRELUDE + end, str(library)) == "good"


@pytest.mark.slow
def test_a_system_that_gives_fewer_threads_gets_fewer(library: Path) -> None:
    script = PRELUDE + (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
        "few = Kernels(Path(sys.argv[1]), 64)\n"
        "made, out = layers(few, 70)\n"
        "few.program(made)()\n"
        "assert torch.equal(out, want)\n"
        "print(few.threads)\n"
    )
    # A process of the superuser is not limited.
    assert 1 <= int(in_process(script, str(library))) <= 64


def test_the_library_says_its_version_and_size_of_an_instruction(library: Path) -> None:
    opened = ctypes.CDLL(str(library))
    assert opened.fl_version() == 2
    assert opened.fl_instruction_bytes() == ctypes.sizeof(Instruction)
