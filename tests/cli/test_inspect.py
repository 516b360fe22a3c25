"""``firstlight inspect`` prints the engine's report, whole, in two forms."""

from __future__ import annotations

import json

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
