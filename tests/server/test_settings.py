"""The settings of a server are checked once, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import ConfigError
from firstlight.server.settings import ServerSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", ""),
        ("port", -1),
        ("port", 65536),
        ("port", "80"),
        ("max_body_bytes", 0),
        ("max_waiting", -1),
        ("admission_threads", 0),
        ("request_seconds", 0),
        ("drain_seconds", float("inf")),
        ("log_format", "xml"),
        ("cors_origins", ("",)),
    ],
)
def test_a_value_that_is_not_accepted_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .*; accepted: "):
        ServerSettings(**{name: value})


def test_a_key_is_never_shown() -> None:
    with pytest.raises(ConfigError, match=r"api_keys = \(not shown\); accepted: keys") as caught:
        ServerSettings(api_keys="secret,")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(ServerSettings(api_keys=("secret",)))


def test_a_body_must_fit_what_all_bodies_may_have() -> None:
    with pytest.raises(ConfigError, match="max_body_bytes = 4096 and max_waiting_bytes = 2048"):
        ServerSettings(max_body_bytes=4096, max_waiting_bytes=2048)


def test_what_is_typed_becomes_values() -> None:
    settings = ServerSettings.from_options(
        {"api_key_file": "~/keys", "cors_origins": "https://a, https://b", "port": None}
    )
    assert settings.api_key_file == Path.home() / "keys"
    assert settings.cors_origins == ("https://a", "https://b")
    assert settings.port == 8000


def test_a_misspelt_setting_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="'drain_second'; did you mean 'drain_seconds'"):
        ServerSettings.from_options({"drain_second": 3})


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_only_loopback_counts_as_local(host: str, local: bool) -> None:
    assert ServerSettings(host=host).is_local is local
