"""Lets torchvision be imported beside a torch that has no CUDA; goes into a peer's environment.

The registry's torchvision is built for CUDA: its compiled operators do not load beside a CPU build
of torch, and its import then stops where it describes them. What image processors call is written
in Python, so declaring the operators is enough. Installed as a ``.pth`` file, it also holds in the
processes that a peer starts itself.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    """Declares the operators when torchvision is first asked for, then steps aside."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None always: others find the module."""
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare()
        return None


def _declare() -> None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    torch: Any = importlib.import_module("torch")
    folder = Path(spec.origin).parent
    try:
        torch.ops.load_library(str(folder / "_C.so"))
    except OSError:
        described = (folder / "_meta_registrations.py").read_text(encoding="utf-8")
        # A library's declarations end with the last reference to it.
        torch._torchvision_declarations = library = torch.library.Library("torchvision", "DEF")
        for operator in re.findall(r'register_fake\("torchvision::(\w+)"\)', described):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou) -> Tensor")


sys.meta_path.insert(0, _BeforeTorchvision())
