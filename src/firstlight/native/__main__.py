"""``python -m firstlight.native [FOLDER]`` compiles the kernels, so that the first start need not.

Prints the library, or why there is none; then the exit code is 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from firstlight.config import EngineConfig
from firstlight.native.build import NativeUnavailableError, build_library


def main(arguments: list[str]) -> int:
    """Compile into the folder that is named, or into that of every engine."""
    folder = Path(arguments[0]) if arguments else EngineConfig().cache_dir
    try:
        print(build_library(folder))
    except NativeUnavailableError as error:
        print(f"no compiled kernels, torch's are used: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
