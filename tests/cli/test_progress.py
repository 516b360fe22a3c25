"""A progress bar is drawn only where somebody looks."""

from __future__ import annotations

import io

import pytest

from firstlight.cli.progress import capture_bar
from firstlight.core.reason import Phase


class Terminal(io.StringIO):
    """Standard error of somebody who sits at a terminal."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_bar_shows_phase_bucket_and_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with capture_bar(True) as step:
        assert step is not None
        step(Phase.PREFILL, 96, 3, 40)
    assert "prefill, bucket 96" in terminal.getvalue()
    assert "3/40" in terminal.getvalue()


def test_without_a_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with capture_bar(True) as step:
        assert step is None
    assert capsys.readouterr().err == ""


def test_nothing_is_drawn_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    with capture_bar(False) as step:
        assert step is None
