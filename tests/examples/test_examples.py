"""The examples run as they are printed, with fewer graphs so that they are quick."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from examples import ask_a_picture, inspect_contract
from firstlight import LLM

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' own LLM, with few buckets and one thread."""

    quick = partial(LLM, threads=1, prefill_buckets=[64], max_num_seqs=1, padding_cost="free")
    monkeypatch.setattr(ask_a_picture, "LLM", quick)
    # This one names its buckets itself.
    monkeypatch.setattr(inspect_contract, "LLM", partial(LLM, threads=1))


def test_a_picture_is_asked_about_and_every_step_is_listed(capsys: Capsys, tmp_path: Path) -> None:
    image = Image.new("RGB", (160, 160), "white")
    ImageDraw.Draw(image).rectangle((40, 40, 120, 120), fill=(30, 60, 220))
    image.save(tmp_path / "square.png")
    ask_a_picture.main([str(tmp_path / "square.png"), "What color is the square?"])
    first, *steps = capsys.readouterr().out.splitlines()
    assert len(first) > len("What color is the square? ")
    assert steps[0].split()[:4] == ["prefill", "graph", "bucket", "64"]
    assert all("captured" in step for step in steps)


def test_the_contract_of_the_bundled_model_is_printed(capsys: Capsys) -> None:
    inspect_contract.main([])
    out = capsys.readouterr().out
    assert "Qwen3VLForConditionalGeneration: a row has" in out
    assert "deepstack.0" in out
    assert "prefill graph   128" in out
