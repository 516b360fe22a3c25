"""``firstlight verify --sanitize`` proves, then lets the sanitizer look."""

from __future__ import annotations

import json

import pytest
from tests.cli.fake_model import FakeModel

from firstlight.cli.main import main
from firstlight.core.reason import Phase
from firstlight.graphs.sanitizer import Finding, FindingKind

Capsys = pytest.CaptureFixture[str]
FINDING = Finding(FindingKind.FOREIGN_WRITE, "KV pool", Phase.DECODE, 4, "page 1, the neighbour")


def test_a_finding_makes_a_proof_that_holds_end_with_1(capsys: Capsys) -> None:
    model = FakeModel()
    model.findings = (FINDING,)
    assert main(["verify", "--sanitize"], open_model=model.open) == 1
    assert model.config is not None
    assert model.config.sanitize
    out, err = capsys.readouterr()
    assert "0 of 2 failed" in out
    assert "foreign_write" in err


def test_no_finding_is_said_and_ends_with_0(capsys: Capsys) -> None:
    assert main(["verify", "--sanitize"], open_model=FakeModel().open) == 0
    assert "no findings" in capsys.readouterr().err


def test_findings_are_in_the_json_beside_the_proof(capsys: Capsys) -> None:
    model = FakeModel()
    model.findings = (FINDING,)
    main(["verify", "--json", "--sanitize"], open_model=model.open)
    report = json.loads(capsys.readouterr().out)
    assert report["passed"]
    assert [f["kind"] for f in report["sanitizer"]] == ["foreign_write"]


def test_without_the_option_the_sanitizer_is_off() -> None:
    model = FakeModel()
    model.findings = (FINDING,)
    assert main(["verify"], open_model=model.open) == 0
    assert model.config is not None
    assert not model.config.sanitize
