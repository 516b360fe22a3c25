"""How a request's field is refused: where it is, what it holds, and what is accepted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from firstlight.errors import RequestError
from firstlight.media.brief import brief


def wrong(where: str, value: object, accepted: str) -> RequestError:
    """The error for a field.

    Args:
        where: its place in the request.
        value: what it holds, None for nothing; shortened, and never a picture's data.
        accepted: what it may hold.
    """
    shown = "missing" if value is None else _shown(value)
    return RequestError(f"{where} is {shown}; accepted: {accepted}")


def check_known(fields: Mapping[str, object], known: Collection[str], where: str) -> None:
    """Raise RequestError for a field that nobody reads: left out in silence it would mislead.

    Args:
        known: names of the fields that are read, or may be left out; null says nothing.
    """
    for name, value in fields.items():
        if name not in known and value is not None:
            close = get_close_matches(str(name), known, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            accepted = ", ".join(sorted(known))
            raise RequestError(
                f"{where}.{str(name)[:64]}: no such field{meant}; accepted: {accepted}"
            )


def _shown(value: object) -> str:
    return brief(value) if isinstance(value, str | bytes) else brief(repr(value)).strip("\"'")
