"""What a bare GPU machine may lack, and this check does not use."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

UNUSED = ("llguidance",)
"""Libraries of features that need no GPU: here, the forms of structured answers."""


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

        class Missing:
            def __init__(self, *args: Any, **options: Any) -> None:
                raise ModuleNotFoundError(f"{name} is not installed", name=name)

        return Missing
