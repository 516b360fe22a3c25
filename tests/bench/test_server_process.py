"""A server of our own, with programs of a line or two in its place."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from firstlight.bench import server_process
from firstlight.errors import ConfigError


def program(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    """Let this shell script be started; its arguments and its number are in the file returned."""
    script, told = folder / "program", folder / "told"
    script.write_text(f'#!/bin/sh\necho "$$ $@" > {told}\n{text}\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return told


def alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_its_address_is_known_once_it_serves_and_it_ends_with_the_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "echo settings all; echo 'listening  http://127.0.0.1:5'; exec sleep 60"
    told = program(monkeypatch, tmp_path, lines)
    began = time.monotonic()
    with server_process("some/model", ["--eager"]) as url:
        number, *arguments = told.read_text().split()
        assert url == "http://127.0.0.1:5"
        assert alive(int(number))
    assert not alive(int(number))
    assert time.monotonic() - began < 20
    assert arguments[:4] == ["-m", "firstlight", "serve", "some/model"]
    assert arguments[-1] == "--eager"


def test_it_ends_with_the_block_also_when_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = program(monkeypatch, tmp_path, "echo 'listening  http://a'; exec sleep 60")
    with pytest.raises(KeyboardInterrupt), server_process("m"):
        raise KeyboardInterrupt
    assert not alive(int(told.read_text().split()[0]))


def test_what_it_said_is_told_if_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(monkeypatch, tmp_path, "echo loading; echo 'no such model' >&2; exit 2")
    with (
        pytest.raises(ConfigError, match="firstlight serve ended with 2: no such model"),
        server_process("m"),
    ):
        pass
