"""``firstlight verify`` says what was proven, and its exit code says whether it held."""

from __future__ import annotations

import json

import pytest
from tests.cli.fake_model import PROOF, FakeModel

from firstlight.cli.main import main

Capsys = pytest.CaptureFixture[str]
FINDING = "mixed: replay and eager: output row 3 is the first of 5 to differ"
FAILED = PROOF | {
    "passed": False,
    "failed": 1,
    "rows": [PROOF["rows"][0], PROOF["rows"][1] | {"verdict": "failed", "worst": 0.5}],
    "findings": [{"phase": "decode", "bucket": 1, "finding": FINDING}],
}


def test_a_proof_that_holds_is_a_table_and_exit_code_0(capsys: Capsys) -> None:
    assert main(["verify"], open_model=FakeModel().open) == 0
    out = capsys.readouterr().out
    assert "passed" in out
    assert "0 of 2 failed; 18 cases" in out


def test_a_proof_that_fails_names_its_findings_and_ends_with_1(capsys: Capsys) -> None:
    model = FakeModel()
    model.proof = FAILED
    assert main(["verify"], open_model=model.open) == 1
    out = capsys.readouterr().out
    assert f"decode, bucket 1: {FINDING}" in out
    assert "1 of 2 failed" in out


def test_json_is_the_report_as_the_engine_gives_it(capsys: Capsys) -> None:
    model = FakeModel()
    model.proof = FAILED
    assert main(["verify", "--json"], open_model=model.open) == 1
    assert json.loads(capsys.readouterr().out) == FAILED


def test_nothing_is_proven_twice() -> None:
    model = FakeModel()
    main(["verify", "some/model", "--max-num-seqs", "2"], open_model=model.open)
    assert model.config is not None
    assert (model.config.proof, model.config.model, model.config.max_num_seqs) == (
        "off",
        "some/model",
        2,
    )


def test_the_level_is_no_option(capsys: Capsys) -> None:
    assert main(["verify", "--proof", "full"], open_model=FakeModel().open) == 2
    assert "No such option: --proof" in capsys.readouterr().err
