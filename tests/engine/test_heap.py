"""Memory as the C allocator keeps it, looked at in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import firstlight

_PROGRAM = """
import ctypes, sys, threading
from firstlight.engine.heap import share_one_heap

if sys.argv[1] == "shared":
    assert share_one_heap()
all_here = threading.Barrier(5)

def allocate():
    held = [bytes(50_000) for _ in range(20)]
    all_here.wait()  # at the same time, so that no thread takes over another one's heap
    return held

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
all_here.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""

_HOLES = """
import sys
from pathlib import Path
from firstlight.engine import heap

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) >> 10

{"starting": heap.starting, "serving": heap.serving}[sys.argv[1]]()
before = resident()
large, small = [], []
for _ in range(48):
    large.append(b"1" * (1 << 20))
    small.append(bytes(2000))  # stays behind the block, unless a hole takes it
del large
print(resident() - before)
"""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


def run(program: str, *arguments: str) -> str:
    environ = os.environ | {"PYTHONPATH": str(Path(firstlight.__file__).parents[1])}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environ, check=True, timeout=60, capture_output=True)
    return done.stdout.decode()


@needs_glibc
def test_while_starting_a_freed_block_goes_back_from_between_others() -> None:
    assert int(run(_HOLES, "starting")) < 8


@needs_glibc
def test_while_serving_freed_blocks_stay_for_the_next_step() -> None:
    assert int(run(_HOLES, "serving")) > 32


@needs_glibc
@pytest.mark.parametrize(("way", "heaps"), [("shared", "one"), ("as it is", "several")])
def test_threads_share_one_heap_once_they_are_told(way: str, heaps: str, tmp_path: Path) -> None:
    told = tmp_path / "heaps.xml"
    run(_PROGRAM, way, str(told))
    count = told.read_text().count("<heap nr=")
    assert (count == 1) == (heaps == "one")
