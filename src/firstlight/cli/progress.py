"""The progress bar of loading and capture, on standard error, where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from firstlight.cli.session import CaptureProgress, ChatModel, Session
from firstlight.config import EngineConfig
from firstlight.core.reason import Phase


@contextmanager
def capture_bar(
    shown: bool, first: str = "loading", doing: str = "capturing"
) -> Iterator[CaptureProgress | None]:
    """A bar over buckets, and the callback that moves it; None where nothing is to be drawn.

    Args:
        first: what the bar says until the first bucket.
        doing: what is done to each bucket.
    """
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=None)

        def step(phase: Phase, bucket: int, done: int, total: int) -> None:
            text = f"{doing} {phase.value}, bucket {bucket}"
            bar.update(task, completed=done, total=total, description=text)

        yield step


def open_with_bar(
    session: Session, config: EngineConfig, *, shown: bool, late: bool = False
) -> ChatModel:
    """The model of ``config``, its capture drawn as it goes; ``late`` as for the session."""
    with session.opening(config), capture_bar(shown) as progress:
        return session.open_model(config, progress, late=late)
