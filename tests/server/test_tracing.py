"""Spans are an extra that costs nothing where nobody asks for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from firstlight.errors import ConfigError
from firstlight.server.settings import ServerSettings
from firstlight.server.tracing import open_tracing

URL = "http://127.0.0.1:4318/v1/traces"


def test_nothing_is_made_unless_it_is_asked_for() -> None:
    assert open_tracing(ServerSettings()) is None


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"otel": True}, "otel = True"), ({"otlp_traces_endpoint": URL}, "otlp_traces_endpoint = ")],
)
def test_without_the_extra_the_error_names_it(
    asked: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "firstlight.server.otel", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigError, match=rf"{told}.*pip install 'firstlight\[otel\]'"):
        open_tracing(ServerSettings.from_options(asked))


@pytest.mark.parametrize(
    "url", ["collector:4318", "http://user:secret@host/v1", "http://host/?key=secret", "http://"]
)
def test_an_address_with_a_secret_in_it_is_refused_since_the_start_prints_it(url: str) -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint"):
        ServerSettings(otlp_traces_endpoint=url)


@pytest.mark.slow
def test_a_server_without_spans_imports_nothing_of_the_extra() -> None:
    code = (
        "import sys, firstlight.server.serve;"
        "own = ('opentelemetry.sdk', 'opentelemetry.exporter', 'firstlight.server.otel');"
        "print([name for name in sys.modules if name.startswith(own)])"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert told.stdout.strip() == "[]"
