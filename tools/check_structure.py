"""Checks what no linter does: import direction, where libraries are used, sizes.

``python tools/check_structure.py [ROOT]`` prints each violation as ``file:line: message`` and exits
with 1 if there is one. The tests call the same functions.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

PACKAGE: Final = "firstlight"
FOLDERS: Final = ("src", "tests", "tools", "benchmarks", "examples")
MAX_FILE_LINES: Final = 500
MAX_FUNCTION_LINES: Final = 50
MAX_MEDIAN_LINES: Final = 150

_BASE: Final = frozenset({"errors", "config", "contract"})
MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    "errors": frozenset(),
    "settings": frozenset({"errors"}),
    "media_settings": frozenset({"settings"}),
    "bucket_settings": frozenset({"errors", "settings"}),
    "config": frozenset({"errors", "settings", "media_settings", "bucket_settings"}),
    "contract": frozenset({"errors"}),
    # Host values to a device: for all who fill what a step reads.
    "transfer": frozenset(),
    # Zeros that are not resident yet: for pools of pages and for weights.
    "fresh_memory": frozenset(),
    # Triton kernels: functions of tensors, for whoever runs on a GPU.
    "gpu": frozenset(),
    "core": _BASE,
    "demo": _BASE,
    # A load for any server: nothing of an engine.
    "bench": _BASE | {"settings", "demo"},
    "media": _BASE | {"core"},
    "memory": _BASE | {"core", "fresh_memory"},
    "attention": _BASE | {"core", "memory"},
    # Compiled kernels: a graph's backend is given what compiles, and knows nothing of this.
    "native": frozenset({"errors", "config", "fresh_memory"}),
    "models": _BASE | {"core", "media", "memory", "attention", "native"},
    # Somebody with a decoder of their own can use graphs alone.
    "graphs": frozenset({"errors", "contract", "core", "transfer"}),
    "sampling": _BASE | {"core", "transfer"},
    "engine": _BASE
    | {"core", "demo", "media", "memory", "attention", "native", "models", "graphs", "sampling"}
    | {"transfer"},
    "server": _BASE | {"settings", "core", "demo", "media", "engine"},
    "cli": _BASE | {"bench", "core", "demo", "media", "models", "graphs", "engine", "server"},
    "testing": _BASE | {"core", "models", "graphs", "engine"},
    "__main__": frozenset({"cli"}),
}
"""Which parts of the package each part may import, beside itself."""

LIBRARY_HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "transformers": ("models/", "media/", "engine/prompt.py"),
    # It is an extra: only who asks for spans imports it.
    "opentelemetry": ("server/otel.py",),
}
"""The only places where a library may be imported."""

NO_TORCH: Final = (
    "bench",
    "errors",
    "settings",
    "media_settings",
    "bucket_settings",
    "config",
    "contract",
    "core",
    "engine/scheduling",
)
"""Parts, and folders or modules inside them, whose files do not import torch."""

ENVIRONMENT_HOME: Final = "config.py"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check_imports(package: Path) -> Iterator[Violation]:
    """Edges that point the wrong way, and libraries out of their place.

    Args:
        package: the folder of the package, e.g. ``src/firstlight``.
    """
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        part = inside.parts[0].removesuffix(".py")
        for line, module in _imports(ast.parse(path.read_text()), path, package):
            library, _, rest = module.partition(".")
            if library == PACKAGE:
                yield from _check_edge(path, line, part, rest.partition(".")[0])
            else:
                yield from _check_library(path, line, inside, library)


def check_environment(package: Path) -> Iterator[Violation]:
    """Reads of environment variables outside the configuration."""
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).as_posix() == ENVIRONMENT_HOME:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if name in ("environ", "getenv", "getenvb", "environb"):
                message = f"the environment is read outside {ENVIRONMENT_HOME} ({name})"
                yield Violation(path, node.lineno, message)  # type: ignore[attr-defined]


def check_sizes(root: Path) -> Iterator[Violation]:
    """Files and functions over their limits, and a median file of the package over its own."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text()
            lines = len(text.splitlines())
            if lines > MAX_FILE_LINES:
                yield Violation(path, 1, f"{lines} lines; at most {MAX_FILE_LINES}")
            yield from _check_functions(path, ast.parse(text))
    median = median_lines(root / "src")
    if median > MAX_MEDIAN_LINES:
        message = f"the median file has {median:g} lines; at most {MAX_MEDIAN_LINES}"
        yield Violation(root / "src", 1, message)


def median_lines(folder: Path) -> float:
    """Lines of the median Python file below a folder."""
    return statistics.median(len(p.read_text().splitlines()) for p in folder.rglob("*.py"))


def check(root: Path) -> list[Violation]:
    """All violations in a checkout."""
    package = root / "src" / PACKAGE
    return [*check_imports(package), *check_environment(package), *check_sizes(root)]


def _imports(tree: ast.Module, path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module imported anywhere in a file."""
    here = (PACKAGE, *path.relative_to(package).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            if module == PACKAGE:  # `from firstlight import engine` names a part
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def _check_edge(path: Path, line: int, part: str, target: str) -> Iterator[Violation]:
    if part == "__init__" or target in ("", part):  # the package's own front gathers what it shows
        return
    allowed = MAY_IMPORT.get(part)
    if allowed is None:
        yield Violation(path, line, f"{part} is not in the table of parts (MAY_IMPORT)")
    elif target in MAY_IMPORT and target not in allowed:
        yield Violation(path, line, f"{part} must not import {target}")


def _check_library(path: Path, line: int, inside: Path, library: str) -> Iterator[Violation]:
    module = PurePosixPath(inside.with_suffix(""))
    for home in NO_TORCH if library == "torch" else ():
        if module.is_relative_to(home):
            yield Violation(path, line, f"{home} must not import torch")
    homes = LIBRARY_HOMES.get(library)
    if homes is not None and not inside.as_posix().startswith(homes):
        yield Violation(path, line, f"{library} is imported outside {', '.join(homes)}")


def _check_functions(path: Path, tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                message = f"{node.name}() has {lines} lines; at most {MAX_FUNCTION_LINES}"
                yield Violation(path, node.lineno, message)


def main(arguments: list[str]) -> int:
    """Check the checkout given, by default the one this file is in."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    violations = check(root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
