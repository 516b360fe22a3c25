"""``python -m benchmarks.gpu``: see :mod:`benchmarks.gpu.check`."""

from __future__ import annotations

import sys

from benchmarks.gpu.absent import stand_in_for_absent

if __name__ == "__main__":
    absent = stand_in_for_absent()
    # Only now: firstlight imports them.
    from benchmarks.gpu.check import main

    sys.exit(main(absent=absent))
