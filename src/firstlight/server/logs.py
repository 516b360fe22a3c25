"""Structured logs. No prompt, answer, key, address or query of a request is ever in them."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import IO, Any

NAME = "firstlight"


def log_event(
    logger: logging.Logger, event: str, /, level: int = logging.INFO, **facts: Any
) -> None:
    """One line: what happened, and its facts by name; facts that are None are left out."""
    shown = {name: value for name, value in facts.items() if value is not None}
    logger.log(level, "%s", event, extra={"facts": shown})


def trace(error: BaseException) -> str:
    """Where an exception came from. Its message is left out: it may repeat a request."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__} at {places}"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """The same for people: time, level, event, ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback below it if there is one."""
        facts = " ".join(f"{k}={_plain(v)}" for k, v in getattr(record, "facts", {}).items())
        line = f"{_time(record)} {record.levelname:<7} {record.getMessage()} {facts}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(form: str, stream: IO[str] | None = None) -> None:
    """Send logs to ``stream`` (standard error), as ``text`` or ``json``.

    They are firstlight's, uvicorn's and OpenTelemetry's, which tells what it could not send.
    uvicorn's own lines about requests are off: they repeat queries.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name in (NAME, "uvicorn", "opentelemetry"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO if name == NAME else logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True


def _time(record: logging.LogRecord) -> str:
    at = time.gmtime(record.created)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', at)}.{int(record.msecs):03d}Z"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if set(text) & set(' "=\n') else text
