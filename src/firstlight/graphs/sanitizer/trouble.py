"""What went wrong in one trial run, before it is known which slot caused it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trial's failure.

    Attributes:
        what: ``raised``, ``nan``, ``changed``, ``outside``.
        detail: the exception, or the rows.
        op, where: the operation, if it is known.
        step: its number on the tape, -1 if unknown.
    """

    what: str
    detail: str
    op: str = ""
    where: str = ""
    step: int = -1
