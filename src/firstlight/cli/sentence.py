"""An error as one line for people."""

from __future__ import annotations

import typer

from firstlight.cli.configured import whence
from firstlight.errors import FirstlightError

# typer exports only this leaf; its base is what all errors of usage share in every typer release.
_UsageError = typer.BadParameter.__bases__[0]


def sentence(error: Exception) -> str:
    """``error`` as one line; one that nobody foresaw says how to see where it arose."""
    # An error of usage words its text itself, with the name of the option.
    text = " ".join(getattr(error, "format_message", error.__str__)().split())
    if text and isinstance(error, _UsageError | FirstlightError):
        return text + _given(error) + _as_list(text)
    kind = type(error).__name__
    return f"{kind}: {text} (an error firstlight did not expect; --debug shows where it arose)"


def _as_list(text: str) -> str:
    """How a list is typed, for those who know it with spaces between."""
    extra = text.startswith("Got unexpected extra argument")
    return "; several values of one option are typed as a,b" if extra else ""


def _given(error: Exception) -> str:
    """The value of a wrong option, which newer releases of typer leave out of their text."""
    details = getattr(error.__cause__, "errors", None)
    if not isinstance(error, typer.BadParameter):
        return ""
    found = details() if callable(details) else []
    values = [repr(detail["input"])[:80] for detail in found if "input" in detail]
    given = f"; given: {', '.join(values)}" if values else ""
    name = getattr(error.param, "name", None)
    where = whence(error.ctx, name) if error.ctx is not None and name else None
    return given + (f" (from {where})" if where else "")
