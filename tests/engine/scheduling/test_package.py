from __future__ import annotations

import subprocess
import sys


def test_the_scheduler_is_imported_without_torch() -> None:
    code = "import sys, firstlight.engine.scheduling; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
