from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"


def test_the_scheduler_is_imported_without_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r}); import firstlight.engine.scheduling; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
