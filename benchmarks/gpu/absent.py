"""What a bare GPU machine may lack, and this check does not use."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

UNUSED = ("llguidance", "httpx2", "httpcore2")
"""Libraries of features that need no GPU: the forms of structured answers, pictures from the
network."""


def stand_in_for_absent() -> tuple[str, ...]:
    """Let firstlight be imported without :data:`UNUSED`; returns those that are not installed.

    Using one of them still fails, with its name.
    """
    absent = tuple(name for name in UNUSED if importlib.util.find_spec(name) is None)
    for name in absent:
        sys.modules[name] = _Absent(name)
    return absent


class _Absent(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = self.__name__

        class Missing(Exception):  # some of a library's names are caught
            def __init__(self, *args: Any, **options: Any) -> None:
                raise ModuleNotFoundError(f"{name} is not installed", name=name)

        return Missing
