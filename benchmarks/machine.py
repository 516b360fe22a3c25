"""Where and on what a figure was measured."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent


def about() -> dict[str, str | int]:
    """Machine, threads, versions, commit (marked if files were changed) and date."""
    return {
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "amx": str(torch.cpu._is_amx_tile_supported()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str:
    def git(*arguments: str) -> str:
        call = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return call.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if changed else "")
