"""``firstlight inspect`` prints the engine's report, whole, in two forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.fake_model import REPORT, FakeModel

from firstlight.cli.main import main

Capsys = pytest.CaptureFixture[str]


def test_json_is_the_report_as_the_engine_gives_it(capsys: Capsys) -> None:
    assert main(["inspect", "--json"], open_model=FakeModel().open) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


@pytest.mark.parametrize(
    "shown",
    [
        "FakeForConditionalGeneration",
        "deepstack.0",
        "input_embeds",
        "[64, 24]",
        "6.0 KiB",
        "Graphs: 1, 2.0 KiB of their own, 0.25 s to capture",
        "Planes: none",
        "no_bucket",
        "more than 64 rows",
        "FakeAttention 2",
        "│ kv_bytes │ 4.0 KiB",
        "yes",
    ],
)
def test_tables_show_every_part_of_the_report(capsys: Capsys, shown: str) -> None:
    main(["inspect"], open_model=FakeModel().open)
    assert shown in " ".join(capsys.readouterr().out.split())


def test_options_reach_the_configuration() -> None:
    model = FakeModel()
    main(["inspect", "some/model", "--max-num-seqs", "4", "--eager"], open_model=model.open)
    assert model.config is not None
    assert (model.config.model, model.config.max_num_seqs, model.config.eager) == (
        "some/model",
        4,
        True,
    )


def test_waste_is_expected_on_lengths_of_ones_own(capsys: Capsys, tmp_path: Path) -> None:
    class Model(FakeModel):
        def inspect(self) -> dict[str, object]:
            times = [{"rows": n, "eager_ms": 2.0 + n, "replay_ms": 1.0 + n} for n in (1, 64)]
            return REPORT | {"padding_cost": {"prefill": times}, "waste": []}

    lengths = tmp_path / "lengths.txt"
    lengths.write_text("62\n100\n")
    assert main(["inspect", "--json", "--lengths", str(lengths)], open_model=Model().open) == 0
    (row,) = json.loads(capsys.readouterr().out)["waste"]
    assert row["lengths"] == "2 lengths from 62 to 100"
    assert row["rows"] == pytest.approx(164 / 162 - 1, abs=1e-4)
    assert row["time"] == pytest.approx((65 + 102) / (63 + 101) - 1, abs=1e-4)
    assert row["eager"] == 0.5


def test_a_file_of_lengths_is_read_before_a_model_is_loaded(capsys: Capsys) -> None:
    model = FakeModel()
    assert main(["inspect", "--lengths", "none.txt"], open_model=model.open) == 2
    assert model.config is None
    assert "none.txt" in capsys.readouterr().err


def test_faults_and_what_runs_eager_come_first(capsys: Capsys) -> None:
    main(["inspect"], open_model=FakeModel().open)
    titles = [line for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()]
    assert titles[:3] == ["Faults: none", "Runs eager", "Model"]
