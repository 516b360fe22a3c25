"""``firstlight bench media`` measures a real checkpoint beside transformers and tells both."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

import pytest
from tests.conftest import TinyCheckpoint

from firstlight.cli.main import main

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def told(
    tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Mapping[str, Any]]:
    """The tables and the JSON of one size, two formats and one round."""
    file, shown = tmp_path_factory.mktemp("bench") / "numbers.json", io.StringIO()
    arguments = ["bench", "media", str(tiny_checkpoint("qwen3_vl")), "--sizes", "64"]
    arguments += ["--formats", "jpeg,png", "--rounds", "1", "--media-threads", "2"]
    with redirect_stdout(shown):
        assert main([*arguments, "--json", str(file)]) == 0
    return shown.getvalue(), json.loads(file.read_text())


def test_every_size_in_every_format_has_a_row(told: tuple[str, Mapping[str, Any]]) -> None:
    cases = [(row["size"], row["format"]) for row in told[1]["rows"]]
    assert cases == [(64, "JPEG"), (64, "PNG")]


def test_the_stages_of_a_cold_picture_are_within_its_time(
    told: tuple[str, Mapping[str, Any]],
) -> None:
    for row in told[1]["rows"]:
        ms = row["ms"]
        assert all(ms[stage] > 0 for stage in ("read", "decode", "process", "encode"))
        assert ms["read"] + ms["decode"] + ms["process"] <= ms["cold"]["median"]


def test_one_round_has_no_spread_and_its_ratio_is_that_of_its_times(
    told: tuple[str, Mapping[str, Any]],
) -> None:
    for row in told[1]["rows"]:
        cold, theirs = row["ms"]["cold"], row["ms"]["transformers"][row["fastest"]]
        assert cold["least"] == cold["median"] == cold["most"]
        assert row["ratio"] == pytest.approx(cold["median"] / theirs["median"], abs=2e-3)
        rates = row["images_per_s"]
        assert rates["transformers"] == pytest.approx(1e3 / theirs["median"], rel=1e-2)
        assert row["speedup"] == pytest.approx(
            rates["all_threads"] / rates["transformers"], rel=1e-2
        )


def test_both_sides_made_the_same_tensors(told: tuple[str, Mapping[str, Any]]) -> None:
    assert [row["same_tensors"] for row in told[1]["rows"]] == [True, True]


def test_what_was_measured_is_named(told: tuple[str, Mapping[str, Any]]) -> None:
    about = told[1]["about"]
    assert (about["threads"], about["media_threads"], about["rounds"]) == (1, 2, 1)
    assert about["backends"][0] == "pil"
    assert "transformers" in about


@pytest.mark.parametrize("shown", ["JPEG", "decode", "encode", "2 threads", "ratio"])
def test_tables_show_the_numbers(told: tuple[str, Mapping[str, Any]], shown: str) -> None:
    assert shown in told[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes", "224,x"], "--sizes = '224,x'; accepted: ints from 16 to 8192"),
        (["--sizes", "9000"], "ints from 16 to 8192"),
        (["--rounds", "0"], "--rounds takes an int from 1"),
        (["--formats", ","], "at least one format"),
        (["--json", "no/such/folder/x.json"], "there is no such folder"),
        (["--media-threads", "0"], "media_threads = 0"),
    ],
)
def test_wrong_options_are_refused_before_a_model_is_loaded(
    capsys: Capsys, arguments: list[str], said: str
) -> None:
    assert main(["bench", "media", "no/such/model", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_model_for_text_has_no_pictures_to_time(
    capsys: Capsys, tiny_checkpoint: TinyCheckpoint
) -> None:
    assert main(["bench", "media", str(tiny_checkpoint("llama"))]) == 2
    assert "takes text only" in capsys.readouterr().err


def test_a_format_that_is_not_read_is_refused_by_name(
    capsys: Capsys, tiny_checkpoint: TinyCheckpoint
) -> None:
    model = str(tiny_checkpoint("qwen3_vl"))
    assert main(["bench", "media", model, "--formats", "eps", "--sizes", "32"]) == 2
    assert "EPS pictures are not read here" in capsys.readouterr().err


def test_the_group_alone_lists_what_it_measures(capsys: Capsys) -> None:
    assert main(["bench"]) == 0
    assert "media" in capsys.readouterr().out
