"""``python -m benchmarks.peers``, which ``scripts/bench peers`` calls."""

from __future__ import annotations

from benchmarks.peers.cli import main

if __name__ == "__main__":
    main()
