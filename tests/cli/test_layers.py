"""The command line goes before the environment, that before a file, that before the defaults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.fake_model import FakeModel
from tests.cli.test_serve import Started, started

from firstlight.cli.main import main
from firstlight.config import EngineConfig

__all__ = ["started"]
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of whoever runs the tests are not theirs."""
    for name in [name for name in os.environ if name.startswith("FIRSTLIGHT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fl.yaml"


def _inspect(*arguments: str) -> EngineConfig:
    """The configuration that ``inspect`` opens a model with."""
    model = FakeModel()
    assert main(["inspect", *arguments], open_model=model.open) == 0
    assert model.config is not None
    return model.config


def test_each_source_goes_before_the_next(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("max-context: 100\npage-size: 4\nthreads: 3\n")
    monkeypatch.setenv("FIRSTLIGHT_MAX_CONTEXT", "200")
    monkeypatch.setenv("FIRSTLIGHT_PAGE_SIZE", "8")
    config = _inspect("--config", str(file), "--max-context", "300")
    assert (config.max_context, config.page_size, config.threads) == (300, 8, 3)
    assert config.max_num_seqs == EngineConfig().max_num_seqs


@pytest.mark.parametrize("typed", ["--no-eager", "--eager"])
def test_what_is_typed_undoes_a_flag_of_the_file(typed: str, file: Path) -> None:
    file.write_text(f"eager: {'true' if typed == '--no-eager' else 'false'}\n")
    assert _inspect("--config", str(file), typed).eager is (typed == "--eager")


def test_names_from_elsewhere_rank_by_their_source_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("max-model-len: 100\n")
    assert _inspect("--config", str(file)).max_context == 100
    assert _inspect("--config", str(file), "--max-context", "300").max_context == 300
    monkeypatch.setenv("FIRSTLIGHT_CTX_SIZE", "200")
    assert _inspect("--config", str(file)).max_context == 200


@pytest.mark.parametrize("key", ["max-context", "max_context", "MAX_CONTEXT", "--max-context"])
def test_a_key_may_be_written_as_an_option_or_a_setting(key: str, file: Path) -> None:
    file.write_text(f'"{key}": 64\n')
    assert _inspect("--config", str(file)).max_context == 64


def test_a_setting_is_known_by_its_own_name_as_well(file: Path) -> None:
    file.write_text("prefill_buckets: [64, 128]\nno-prefix-cache: true\nfuse: no\n")
    config = _inspect("--config", str(file))
    assert config.prefill_buckets == (64, 128)
    assert not config.prefix_cache
    assert not config.fuse


def test_the_model_may_come_from_any_source(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("model: of/file\n")
    assert _inspect("--config", str(file)).model == "of/file"
    monkeypatch.setenv("FIRSTLIGHT_MODEL", "of/environment")
    assert _inspect("--config", str(file)).model == "of/environment"
    assert _inspect("typed").model == "typed"
    assert _inspect("--model-path", "typed").model == "typed"


def test_run_takes_its_one_argument_as_the_prompt_where_a_model_is_named(file: Path) -> None:
    file.write_text("model: of/file\nmax-tokens: 3\n")
    model = FakeModel("a", "b")
    main(["run", "--config", str(file), "why?"], open_model=model.open)
    assert model.config is not None
    assert (model.config.model, model.params[0].max_tokens) == ("of/file", 3)
    main(["run", "--config", str(file), "other/model", "why?"], open_model=model.open)
    assert model.config.model == "other/model"


def test_a_file_may_serve_several_commands(file: Path) -> None:
    file.write_text("port: 9000\nproof: full\nmax-tokens: 3\n")
    assert _inspect("--config", str(file)).proof == "full"


def test_the_environment_may_name_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("max-context: 64\n")
    monkeypatch.setenv("FIRSTLIGHT_CONFIG", str(file))
    assert _inspect().max_context == 64


def _refused(capsys: Capsys, *arguments: str) -> str:
    model = FakeModel("a")
    assert main(list(arguments), open_model=model.open) == 2
    assert model.config is None
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max-contxt: 1",
            "fl.yaml:1: there is no option 'max-contxt'; did you mean 'max-context'?",
        ),
        ("zzz: 1", "fl.yaml:1: there is no option 'zzz'; see --help"),
        ("max-context: one", "'--max-context'"),
        ("max-context: one", "fl.yaml:1)"),
        ("page-size: 3", "page_size = 3; accepted: a power of two"),
        ("page-size: 3", "(page_size from "),
        ("eager: perhaps", "fl.yaml:1: 'perhaps' is neither true nor false"),
        ("mem-fraction-static: 0.9", "--kv-bytes limits the KV pool"),
        ("mem-fraction-static: 0.9", "fl.yaml:1)"),
        ("max-context: 5\nmax-model-len: 6", "give one setting two values"),
        ("max-context: 5\nmax_context: 6", "give one option two values"),
        ("eager: [true]\n", "neither true nor false"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    text: str, message: str, file: Path, capsys: Capsys
) -> None:
    file.write_text(f"{text}\n")
    assert message in _refused(capsys, "inspect", "--config", str(file))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MAX_CONTEXT", "one", "(from FIRSTLIGHT_MAX_CONTEXT)"),
        ("PAGE_SIZE", "3", "(page_size from FIRSTLIGHT_PAGE_SIZE)"),
        ("EAGER", "perhaps", "FIRSTLIGHT_EAGER: 'perhaps' is neither true nor false"),
        ("TP_SIZE", "2", "--tp-size: the model runs in one process"),
    ],
)
def test_what_is_wrong_in_the_environment_is_told_by_its_variable(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setenv(f"FIRSTLIGHT_{name}", value)
    assert message in _refused(capsys, "inspect")


def test_a_variable_that_is_nearly_an_option_is_told_and_others_are_let_be(
    monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_MAX_CONTXT", "5")
    monkeypatch.setenv("FIRSTLIGHT_SERVICE_HOST", "10.0.0.1")  # Kubernetes sets such
    monkeypatch.setenv("FIRSTLIGHT_PORT", "9000")  # of another command
    assert _inspect().max_context is None
    err = capsys.readouterr().err
    assert err == (
        "firstlight: FIRSTLIGHT_MAX_CONTXT is no option; did you mean FIRSTLIGHT_MAX_CONTEXT?\n"
    )


def test_what_kubernetes_makes_of_a_service_is_no_port(
    monkeypatch: pytest.MonkeyPatch, capsys: Capsys, started: Started
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_PORT", "tcp://10.0.0.1:8000")
    assert main(["serve"]) == 0
    assert started[0][1].port == 8000
    assert "enableServiceLinks: false" in capsys.readouterr().err


def test_a_text_of_a_file_may_hold_commas_and_a_variable_is_a_list(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('stop: "a, b"\n')
    model = FakeModel("a", "b", "c")
    main(["run", "--config", str(file), "x"], open_model=model.open)
    monkeypatch.setenv("FIRSTLIGHT_STOP", "a, b")
    main(["run", "x"], open_model=model.open)
    monkeypatch.setenv("FIRSTLIGHT_STOP", '["a, b", "c"]')
    main(["run", "x"], open_model=model.open)
    assert [params.stop for params in model.params] == [("a, b",), ("a", "b"), ("a, b", "c")]


def test_two_models_on_one_line_are_refused(capsys: Capsys) -> None:
    for arguments in (["inspect", "a", "--model", "b"], ["run", "a", "why?", "-m", "b"]):
        assert "MODEL and --model" in _refused(capsys, *arguments).replace("by ", "")
