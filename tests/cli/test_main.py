"""How the command line starts and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.fake_model import FakeModel

from firstlight import __version__
from firstlight.cli.main import main
from firstlight.cli.session import CaptureProgress
from firstlight.config import EngineConfig
from firstlight.errors import ModelLoadError

Capsys = pytest.CaptureFixture[str]


def test_version_is_printed(capsys: Capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"firstlight {__version__}\n"


@pytest.mark.parametrize("command", [[], ["run"], ["bench", "media"]])
def test_help_has_a_short_form(command: list[str], capsys: Capsys) -> None:
    assert main([*command, "-h"]) == 0
    assert "Usage: firstlight" in capsys.readouterr().out


def test_without_arguments_the_help_is_printed(capsys: Capsys) -> None:
    assert main([]) == 0
    assert "inspect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["run"], "--allow-any-media-host / --no-allow-any-media-host"),
        (["serve"], "--otlp-traces-endpoint"),
        (["bench", "serve"], "--distinct-images"),
    ],
)
def test_help_in_a_narrow_terminal_has_every_name_in_full(
    command: list[str], option: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    assert option in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frob"], "No such command 'frob'."),
        (["run"], "run takes [MODEL] PROMPT; the prompt is missing"),
        (["run", "a", "b", "c"], "Got unexpected extra argument(s) (c)"),
        (["run", "x", "--dtype", "int8"], "dtype = 'int8'; accepted: "),
        (["run", "x", "--device", "tpu"], "device = 'tpu'; accepted: 'cpu', 'cuda' or 'cuda:N'"),
        (["run", "x", "--backend", "cuda"], "backend = 'cuda' and device = 'cpu' contradict"),
        (["run", "x", "-n", "0"], "max_tokens = 0; accepted: "),
        (["run", "x", "--eager", "--buckets", "64"], "eager = True and prefill_buckets = (64,)"),
        (["inspect", "--top-k", "3"], "No such option: --top-k"),
        (["run", "x", "--seed", "one"], "Invalid value for '--seed'"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    capsys: Capsys, arguments: list[str], sentence: str
) -> None:
    assert main(arguments, open_model=FakeModel("a").open) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"firstlight: {sentence}")
    assert err.count("\n") == 1


def test_a_value_of_the_wrong_type_is_told(capsys: Capsys) -> None:
    assert main(["run", "x", "--seed", "one"], open_model=FakeModel("a").open) == 2
    assert "'one'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--debug", "run", "x"], ["run", "x", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments: list[str]) -> None:
    with pytest.raises(ModelLoadError):
        main(arguments, open_model=FakeModel(ModelLoadError("no weights")).open)


def test_debug_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_DEBUG", "1")
    model = FakeModel(ModelLoadError("no weights"))
    with pytest.raises(ModelLoadError):
        main(["run", "x"], open_model=model.open)
    assert model.config is not None
    assert not model.config.debug  # the setting of that name is another matter


def test_debug_behind_two_dashes_is_a_prompt() -> None:
    model = FakeModel("a")
    main(["run", "--", "--debug"], open_model=model.open)
    assert model.asked[0][0]["content"] == [{"type": "text", "text": "--debug"}]


def test_an_error_nobody_expected_names_its_type_and_how_to_see_more(capsys: Capsys) -> None:
    model = FakeModel(ValueError("shape mismatch"))
    assert main(["run", "x"], open_model=model.open) == 2
    assert capsys.readouterr().err == (
        "firstlight: ValueError: shape mismatch "
        "(an error firstlight did not expect; --debug shows where it arose)\n"
    )


def test_an_interrupt_ends_with_code_130() -> None:
    def interrupted(
        config: EngineConfig, progress: CaptureProgress | None, *, late: bool = False
    ) -> FakeModel:
        raise KeyboardInterrupt

    assert main(["run", "x"], open_model=interrupted) == 130


def test_help_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from firstlight.cli.main import main; main(['run', '--help']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=False, stdout=subprocess.DEVNULL
    )
    assert done.returncode == 0
