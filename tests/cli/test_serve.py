"""What is typed behind ``firstlight serve``, as the server gets it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import firstlight.server.serve
from firstlight.cli.main import main
from firstlight.config import EngineConfig
from firstlight.server.settings import ServerSettings

Started = list[tuple[EngineConfig, ServerSettings]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The settings of every server that was started; none serves."""
    found: Started = []

    def serve(config: EngineConfig, settings: ServerSettings, **more: Any) -> Any:
        found.append((config, settings))
        return lambda: None

    monkeypatch.setattr(firstlight.server.serve, "serve", serve)
    return found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of whoever runs the tests are not theirs."""
    for name in [name for name in os.environ if name.startswith("FIRSTLIGHT_")]:
        monkeypatch.delenv(name)


def test_without_options_all_is_as_by_default(started: Started) -> None:
    assert main(["serve"]) == 0
    assert started == [(EngineConfig(), ServerSettings())]


def test_options_become_settings_of_engine_and_server(started: Started) -> None:
    arguments = ["serve", "some/model", "--host", "::1", "--port", "9", "--max-num-seqs", "3"]
    arguments += ["--served-model-name", "a", "--served-model-name", "b", "--no-prefix-cache"]
    arguments += ["--cors-origin", "https://a", "--api-key-file", "keys", "--drain-seconds", "2"]
    arguments += ["--allowed-media-domain", "a.example", "--max-waiting", "5", "--log-format"]
    arguments += ["json", "--max-context", "64", "--request-seconds", "7", "--eager"]
    assert main(arguments) == 0
    ((config, settings),) = started
    assert (config.model, config.max_num_seqs, config.max_context) == ("some/model", 3, 64)
    assert (config.prefix_cache, config.eager) == (False, True)
    assert config.allowed_media_domains == ("a.example",)
    assert settings == ServerSettings(
        host="::1",
        port=9,
        served_model_name=("a", "b"),
        cors_origins=("https://a",),
        api_key_file=Path("keys"),
        drain_seconds=2.0,
        request_seconds=7.0,
        max_waiting=5,
        log_format="json",
    )


def test_a_supervised_server_does_not_supervise_again(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the same file and environment as its supervisor."""
    supervised: list[ServerSettings] = []

    class Supervisor:
        def __init__(self, command: Any) -> None:
            assert "--supervise" not in command(3)

        def run(self, settings: ServerSettings) -> int:
            supervised.append(settings)
            return 0

    monkeypatch.setattr("firstlight.server.supervisor.Supervisor", Supervisor)
    monkeypatch.setattr("firstlight.server.address.inherited", lambda fd: None)
    monkeypatch.setenv("FIRSTLIGHT_SUPERVISE", "true")
    main(["serve", "--port", "9"])
    assert ([s.port for s in supervised], started) == ([9], [])
    assert main(["serve", "--port", "9", "--socket-fd", "3"]) == 0
    assert (len(supervised), len(started)) == (1, 1)


def test_where_settings_come_from_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[dict[str, str]] = []

    def serve(*settings: Any, origins: dict[str, str], **more: Any) -> Any:
        found.append(origins)
        return lambda: None

    monkeypatch.setattr(firstlight.server.serve, "serve", serve)
    monkeypatch.setenv("FIRSTLIGHT_PORT", "9")
    (tmp_path / "a.toml").write_text("\nmax-context = 64\n")
    assert main(["serve", "a/model", "-np", "3", "--config", str(tmp_path / "a.toml")]) == 0
    assert found == [
        {
            "model": "MODEL",
            "port": "FIRSTLIGHT_PORT",
            "max_context": f"{tmp_path / 'a.toml'}:2",
            "max_num_seqs": "-np",
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/model", "--served-model-name", "a", "b"], "(b); several values of one option are"),
        (["--port", "70000"], "port = 70000; accepted: an int from 0 to 65535"),
        (["--dtype", "int8"], "dtype = 'int8'; accepted: "),
        (["--api-keys", "secret"], "No such option: --api-keys"),
        (["--api-key", " ,secret"], "api_keys = (not shown); accepted: keys"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], message: str, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "secret" not in err
    assert started == []
