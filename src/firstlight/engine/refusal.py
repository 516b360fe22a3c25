"""How a request's field is refused: where it is, what it holds, and what is accepted."""

from __future__ import annotations

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


def _shown(value: object) -> str:
    return brief(value) if isinstance(value, str | bytes) else brief(repr(value)).strip("\"'")
