"""``firstlight plan-buckets``: lengths in, a list out that ``--buckets`` takes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_model import FakeModel

from firstlight.cli.lengths import read_lengths
from firstlight.cli.main import main
from firstlight.cli.plan_costs import costs_of_report
from firstlight.config import EngineConfig
from firstlight.errors import ConfigError

Capsys = pytest.CaptureFixture[str]

MEASURED: dict[str, Any] = {
    "padding_cost": {
        "prefill": [
            {"rows": 1, "eager_ms": 4.0, "replay_ms": None},
            {"rows": 16, "eager_ms": 5.5, "replay_ms": 2.0},
            {"rows": 1000, "eager_ms": 104.0, "replay_ms": 100.0},
        ]
    },
    "buckets": {
        "prefill": [
            {
                "size": size,
                "seconds": 1.0,
                "seconds_by_part": {"record": size / 1000, "choosing forms": forms},
                "bytes_by_kind": {"constant": constants, **scratch},
            }
            for size, forms, constants, scratch in (
                (16, 0.1, 100, {}),
                (512, 0.1, 100, {}),
                (1024, 2.1, 900, {"scratch": 4096}),
            )
        ]
    },
}


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(["40"] * 5 + ["100"] * 3 + ["700"] * 2) + "\n")
    return path


def plan(*arguments: object) -> int:
    return main(["plan-buckets", *map(str, arguments)])


def planned(capsys: Capsys, *arguments: object) -> dict[str, Any]:
    assert plan(*arguments, "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_the_plan_stands_beside_the_two_ladders(lengths: Path, capsys: Capsys) -> None:
    report = planned(capsys, lengths, "--max", 2)
    assert report["buckets"] == [100, 700]
    assert report["gap"] == 0
    rows = {row["list"]: row for row in report["lists"]}
    assert list(rows) == ["planned", "default ladder", "SGLang's ladder"]
    # (5 x 100 + 3 x 100 + 2 x 700) / (5 x 40 + 3 x 100 + 2 x 700) - 1
    assert rows["planned"]["rows"] == pytest.approx(2200 / 1900 - 1)
    # 40 -> 48 and 100 -> 112 in both; our ladder ends at the longest, SGLang's stays on its grid.
    for name, last in (("default ladder", 700), ("SGLang's ladder", 704)):
        assert rows[name]["rows"] == pytest.approx((5 * 48 + 3 * 112 + 2 * last) / 1900 - 1)


def test_people_get_a_table_with_percentages_and_the_list(lengths: Path, capsys: Capsys) -> None:
    assert plan(lengths, "--max", 2) == 0
    shown = capsys.readouterr().out
    assert "15.79%" in shown
    assert "SGLang's ladder" in shown
    assert "buckets  100,700" in shown
    assert "eager not allowed" in shown


@pytest.mark.parametrize("name", ["plan.json", "plan.txt", "plan"])
def test_the_file_written_is_a_list_that_the_configuration_takes(
    lengths: Path, tmp_path: Path, name: str, capsys: Capsys
) -> None:
    out = tmp_path / name
    assert plan(lengths, "--max", 2, "--out", out) == 0
    assert f"--buckets {out}" in capsys.readouterr().out
    assert EngineConfig.from_options({"prefill_buckets": str(out)}).prefill_buckets == (100, 700)


def test_the_file_reaches_the_engine_through_the_option_buckets(
    lengths: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    plan(lengths, "--max", 2, "--out", out)
    model = FakeModel()
    main(["inspect", "--buckets", str(out)], open_model=model.open)
    assert model.config is not None
    assert model.config.prefill_buckets == (100, 700)


def test_numbers_make_a_cost(lengths: Path, capsys: Capsys) -> None:
    # A replay takes 5 + b ms, eager 25 + n ms: the one bucket serves the 40 rows, not the 100.
    report = planned(capsys, lengths, "--max", 1, "--fixed-ms", 5, "--row-ms", 1, "--eager-ms", 20)
    assert report["buckets"] == [40]
    row = report["lists"][0]
    assert row["ms"] == pytest.approx((5 * 45 + 3 * 125 + 2 * 725) / 10)
    assert row["eager"] == pytest.approx(0.5)


def test_a_report_of_inspect_makes_a_cost(lengths: Path, tmp_path: Path, capsys: Capsys) -> None:
    cost = tmp_path / "inspect.json"
    cost.write_text(json.dumps(MEASURED))
    report = planned(capsys, lengths, "--cost", cost)
    assert report["buckets"] == [40, 100, 700]
    assert report["lists"][0]["capture_s"] == pytest.approx(2.0 + 3 * 0.1 + 0.84)


def test_a_model_is_measured_at_a_few_sizes_up_to_the_longest(
    lengths: Path, capsys: Capsys
) -> None:
    class Model(FakeModel):
        def inspect(self) -> dict[str, object]:
            return MEASURED

    model = Model()
    code = main(["plan-buckets", str(lengths), "--model", "some/model"], open_model=model.open)
    assert code == 0
    assert "measured of some/model" in capsys.readouterr().out
    assert model.config is not None
    sizes = model.config.prefill_buckets
    assert sizes is not None
    assert (sizes[0], sizes[-1], len(sizes)) == (16, 700, 8)
    assert model.config.model == "some/model"


def test_budgets_hold_and_the_first_capture_is_part_of_the_seconds(
    lengths: Path, tmp_path: Path, capsys: Capsys
) -> None:
    cost = tmp_path / "inspect.json"
    cost.write_text(json.dumps(MEASURED))
    report = planned(capsys, lengths, "--cost", cost, "--budget-s", 2.5)
    assert report["buckets"] == [40, 100]
    assert report["lists"][0]["capture_s"] <= 2.5
    assert plan(lengths, "--cost", cost, "--budget-s", 1.5) == 2
    assert "used up by the 2.00 s" in capsys.readouterr().err


def test_a_budget_of_bytes_counts_scratch_by_the_largest_bucket(
    lengths: Path, tmp_path: Path, capsys: Capsys
) -> None:
    cost = tmp_path / "inspect.json"
    cost.write_text(json.dumps(MEASURED))
    whole = planned(capsys, lengths, "--cost", cost)["lists"][0]["bytes"]
    assert whole == 3 * 100 + 800 + 4096 * 700 // 1024
    report = planned(capsys, lengths, "--cost", cost, "--budget-mb", (whole - 1) / 1e6)
    assert report["buckets"][-1] < 700
    assert report["lists"][0]["bytes"] < whole


def test_what_only_the_first_capture_takes_is_not_laid_on_every_bucket() -> None:
    costs = costs_of_report(MEASURED, "a test")
    assert costs.once_seconds == pytest.approx(2.0)
    assert costs.capture is not None
    assert costs.capture.seconds.at(1024) == pytest.approx(1.124)
    assert costs.capture.own_bytes.at(1024) == 100


def test_long_prompts_are_planned_in_steps(lengths: Path, capsys: Capsys) -> None:
    report = planned(capsys, lengths, "--max-batch-tokens", 256)
    assert report["buckets"] == [40, 100, 188, 256]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3\n\n 5 # why\n", [3, 5]),
        ('{"length": 3}\n{"prompt_tokens": 5}\n', [3, 5]),
        ('{"usage": {"prompt_tokens": 7}, "text": "as run prints it"}', [7]),
    ],
)
def test_lengths_are_ints_or_fields(tmp_path: Path, text: str, expected: list[int]) -> None:
    path = tmp_path / "lengths"
    path.write_text(text)
    assert read_lengths(str(path)) == expected


def test_lengths_come_from_standard_input_and_from_a_field_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": {"n": 4}}\n'))
    assert read_lengths("-", "a.n") == [4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3\nfour\n", r"lengths:2: 'four' is no positive integer"),
        ("0\n", r"lengths:1: 0 is no positive integer"),
        ('{"length": 2.5}', r"lengths:1: 2.5 is no positive"),
        ('{"length": true}', r"True is no positive"),
        ('{"tokens": 3}', r"no field length or prompt_tokens or usage.prompt_tokens; --field"),
        ("{oops", r"lengths:1: no JSON"),
        ("# nothing\n", "holds no lengths"),
    ],
)
def test_what_is_no_length_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lengths"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_lengths(str(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cost", "none.json"], "cannot be read"),
        (["--model", "a", "--cost", "b"], "not from two"),
        (["--model", "a", "--row-ms", "1"], "not from two"),
        (["--row-ms", "-1"], "must not be negative"),
        (["--budget-s", "3"], "what a capture takes"),
        (["--max", "0"], "at least 1 bucket"),
        (["--max-batch-tokens", "0"], "an int from 1"),
    ],
)
def test_options_that_make_no_plan_are_refused_in_one_sentence(
    lengths: Path, arguments: list[str], message: str, capsys: Capsys
) -> None:
    assert plan(lengths, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_lengths_that_is_not_there_is_named(capsys: Capsys) -> None:
    assert plan("none.txt") == 2
    assert "none.txt" in capsys.readouterr().err


def test_a_cost_file_without_costs_is_refused(
    lengths: Path, tmp_path: Path, capsys: Capsys
) -> None:
    cost = tmp_path / "inspect.json"
    cost.write_text('{"padding_cost": {}}')
    assert plan(lengths, "--cost", cost) == 2
    assert "holds no measured prefill costs" in capsys.readouterr().err


def test_where_eager_is_always_faster_the_list_is_empty_and_no_file_is_written(
    lengths: Path, tmp_path: Path, capsys: Capsys
) -> None:
    cost, out = tmp_path / "inspect.json", tmp_path / "out.json"
    slow = [{"rows": n, "eager_ms": 2.0, "replay_ms": 50.0} for n in (1, 1000)]
    cost.write_text(json.dumps({"padding_cost": {"prefill": slow}}))
    assert plan(lengths, "--cost", cost) == 0
    assert "none: eager is always faster" in capsys.readouterr().out
    assert plan(lengths, "--cost", cost, "--out", out) == 2
    assert not out.exists()
