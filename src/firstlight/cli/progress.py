"""The progress bar of a capture, on standard error and only where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from firstlight.cli.session import CaptureProgress, ChatModel, Session
from firstlight.config import EngineConfig
from firstlight.core.reason import Phase


@contextmanager
def capture_bar(shown: bool) -> Iterator[CaptureProgress | None]:
    """A callback that draws the capture of each phase; None where nothing is to be drawn."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("capturing {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {phase: bar.add_task(phase.value, total=None, visible=False) for phase in Phase}

        def step(phase: Phase, bucket: int, done: int, total: int) -> None:
            text = f"{phase.value}, bucket {bucket}"
            bar.update(tasks[phase], completed=done, total=total, description=text, visible=True)

        yield step


def open_with_bar(session: Session, config: EngineConfig, *, shown: bool) -> ChatModel:
    """The model of ``config``, its capture drawn as it goes."""
    with capture_bar(shown) as progress:
        return session.open_model(config, progress)
