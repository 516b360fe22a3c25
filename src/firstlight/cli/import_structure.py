"""Remembers which of transformers' files has which class, which each import of it finds out anew.

transformers reads some two thousand files of its own, twice, to know where its names are. What it
finds depends on those files alone, so it is written to a file and read from there the next time.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

MODULE: Final = "transformers.utils.import_utils"
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
Structure = dict[frozenset[str], dict[str, set[str]]]
"""By required libraries and module: its names."""
Define = Callable[..., Structure]


@contextmanager
def remembered_structure(cache_dir: Path) -> Iterator[None]:
    """transformers is imported within this, if it was not before.

    Args:
        cache_dir: where the file is, and is written to; that it cannot be is no error.
    """
    finder = _Finder(cache_dir)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the one module that finds out, as it would be found, and puts a memory around it."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every other module."""
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._cache_dir)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, cache_dir: Path) -> None:
        self._loader = loader
        self._cache_dir = cache_dir

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        define = getattr(module, "define_import_structure", None)
        if define is not None:
            module.define_import_structure = remembered(define, self._cache_dir)  # type: ignore[attr-defined]


def remembered(define: Define, cache_dir: Path) -> Define:
    """``define(module_path, prefix=None)``, which asks for an installed package of models once."""

    def structure(module_path: str | Path, prefix: str | None = None) -> Structure:
        path = Path(module_path)
        folder = path.parent if path.is_file() else path
        if folder.name != "models" or not _INSTALLED & set(folder.parts):
            return define(module_path, prefix)
        file = cache_dir / "imports" / f"{_key(folder)}.bin"
        found = _read(file)
        if found is None:
            found = define(str(folder))
            _write(file, found)
        start = "" if prefix is None else f"{prefix}."
        return {
            needs: {start + name: set(names) for name, names in modules.items()}
            for needs, modules in found.items()
        }

    return structure


def _key(folder: Path) -> str:
    """Of an installation: each version's own file of names, in the place where it is, and Python,
    whose format the file has.
    """
    package = folder.parent / "__init__.py"
    parts = (str(folder), str(folder.stat().st_mtime_ns), str(sys.implementation.cache_tag))
    return hashlib.sha256(package.read_bytes() + "\0".join(parts).encode()).hexdigest()[:24]


def _read(file: Path) -> Structure | None:
    try:
        found: Structure = marshal.loads(file.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return found if isinstance(found, dict) and found else None


def _write(file: Path, found: Structure) -> None:
    part = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(marshal.dumps(found))
        part.replace(file)
