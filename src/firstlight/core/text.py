"""Texts that can be encoded."""

from __future__ import annotations

from firstlight.errors import RequestError


def check_text(text: str, where: str) -> str:
    """``text``, if it can be encoded as UTF-8.

    A Python string may hold halves of surrogate pairs: from JSON that was cut, or from bytes that
    are not UTF-8. No tokenizer can read them.

    Args:
        where: the text's place in the request, for the message.

    Raises:
        RequestError: with the place and the first character that cannot be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{where} is not valid Unicode: character {error.start} is "
            f"{text[error.start]!r}, which no text in UTF-8 can hold"
        ) from error
    return text
