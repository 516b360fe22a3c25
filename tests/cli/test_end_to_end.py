"""The commands with the real engine and the bundled model, from arguments to printed answer."""

from __future__ import annotations

import io
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from tests.server.running import running

from firstlight import LLM
from firstlight.cli.main import main
from firstlight.cli.session import CaptureProgress
from firstlight.config import EngineConfig

Capsys = pytest.CaptureFixture[str]
QUESTION = "What color is the circle?"


@pytest.fixture(scope="module")
def llm() -> LLM:
    """One loaded model for all tests; two buckets are captured in a moment.

    Padding is free, so that what ran from a graph does not depend on how busy the machine is.
    """
    return LLM(prefill_buckets=[64, 128], max_num_seqs=1, threads=1, padding_cost="free")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A red circle on white."""
    image = Image.new("RGB", (192, 192), "white")
    ImageDraw.Draw(image).ellipse((60, 60, 130, 130), fill=(220, 30, 30))
    path = tmp_path_factory.mktemp("pictures") / "circle.png"
    image.save(path)
    return str(path)


def _run(llm: LLM, *arguments: str) -> int:
    def opened(
        config: EngineConfig, progress: CaptureProgress | None, *, late: bool = False
    ) -> LLM:
        return llm

    return main(list(arguments), open_model=opened)


@pytest.fixture
def answer(llm: LLM, picture: str, capsys: Capsys) -> dict[str, Any]:
    assert _run(llm, "run", "--json", "--image", picture, QUESTION) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_a_picture_and_a_question_give_an_answer(answer: dict[str, Any]) -> None:
    assert answer["text"].strip()
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"])
    assert 0 < answer["usage"]["image_tokens"] < answer["usage"]["prompt_tokens"]


def test_every_step_ran_from_a_graph(llm: LLM, picture: str, capsys: Capsys) -> None:
    _run(llm, "run", "--json", "--image", picture, "What shape does no other test ask about?")
    answer = json.loads(capsys.readouterr().out)
    steps = answer["steps"]
    assert [step["phase"] for step in steps[:2]] == ["prefill", "decode"]
    assert {(step["mode"], step["reason"]) for step in steps} == {("graph", "captured")}
    usage = answer["usage"]
    computed = usage["prompt_tokens"] - usage["cached_tokens"]
    assert steps[0]["tokens"] == computed <= steps[0]["bucket"]


def test_the_time_to_first_token_holds_its_parts(answer: dict[str, Any]) -> None:
    t = answer["timings_ms"]
    assert t["total"] >= t["ttft"] >= t["media"] + t["encode"] + t["prefill"] > 0
    assert t["load"] > 0
    assert t["capture"] > 0


def test_each_picture_says_what_it_took(answer: dict[str, Any]) -> None:
    (picture,) = answer["pictures"]
    assert picture["size"] == [192, 192]
    assert picture["rows"] == answer["usage"]["image_tokens"]
    assert (picture["detail"], picture["options"]) == ("auto", {})
    assert set(picture["ms"]) == {"read", "decode", "process", "encode"}


def test_without_a_picture_there_are_no_image_tokens(llm: LLM, capsys: Capsys) -> None:
    _run(llm, "run", "--json", "hello")
    assert json.loads(capsys.readouterr().out)["usage"]["image_tokens"] == 0


def test_text_is_what_json_says(
    llm: LLM, picture: str, capsys: Capsys, answer: dict[str, Any]
) -> None:
    _run(llm, "run", "--image", picture, QUESTION)
    out, err = capsys.readouterr()
    assert out == answer["text"] + "\n"
    # The question comes again: of its prompt one row is computed, through a decode graph.
    assert "decode graph" in err


def test_eager_gives_the_same_tokens_and_says_that_graphs_are_off(
    picture: str, capsys: Capsys, answer: dict[str, Any]
) -> None:
    assert main(["run", "--json", "--eager", "--image", picture, QUESTION]) == 0
    eager = json.loads(capsys.readouterr().out)
    assert eager["token_ids"] == answer["token_ids"]
    assert {(s["mode"], s["reason"]) for s in eager["steps"]} == {("eager", "graphs_off")}


def test_a_prompt_longer_than_every_bucket_runs_and_says_how(llm: LLM, capsys: Capsys) -> None:
    _run(llm, "run", "--json", "-n", "2", "why? " * 150)
    steps = json.loads(capsys.readouterr().out)["steps"]
    prefill = [step for step in steps if step["phase"] == "prefill"]
    assert sum(step["tokens"] for step in prefill) > 128
    assert len(prefill) > 1 or prefill[0]["reason"] == "no_bucket"


def test_inspect_reports_the_contract(llm: LLM, capsys: Capsys) -> None:
    assert _run(llm, "inspect", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["architecture"] == "Qwen3VLForConditionalGeneration"
    assert report["declared"] is True
    widths = [segment["width"] for segment in report["segments"]]
    assert sum(widths) == report["input_embeds_hidden_size"] > report["hidden_size"]
    assert report["segments"][0] == {"name": "tokens", "start": 0, "width": report["hidden_size"]}
    assert report["backend"] == "tape"


def test_inspect_reports_every_slot_with_its_true_size(llm: LLM, capsys: Capsys) -> None:
    _run(llm, "inspect", "--json")
    report = json.loads(capsys.readouterr().out)
    sizes = {"bfloat16": 2, "float32": 4, "int32": 4, "int64": 8}
    assert {"input_embeds", "positions", "write_locations"} <= {s["name"] for s in report["slots"]}
    for slot in report["slots"]:
        assert slot["bytes"] == prod(slot["shape"]) * sizes[slot["dtype"]]
        assert slot["policy"]


def test_inspect_reports_every_graph(llm: LLM, capsys: Capsys) -> None:
    _run(llm, "inspect", "--json")
    buckets = json.loads(capsys.readouterr().out)["buckets"]
    assert sorted(graph["size"] for graph in buckets["prefill"]) == [64, 128]
    assert [graph["size"] for graph in buckets["decode"]] == [1]
    assert all(graph["seconds"] > 0 for phase in buckets.values() for graph in phase)


def test_every_field_of_inspect_is_documented(llm: LLM, capsys: Capsys) -> None:
    _run(llm, "inspect", "--json")
    report = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = page.partition("## JSON of `inspect`")[2].partition("\n## ")[0]
    parts = {"": report, "slots": report["slots"][0], "buckets": report["buckets"]["decode"][0]}
    parts |= {"eager": report["eager"]["prefill"][0], "segments": report["segments"][0]}
    for part, fields in parts.items():
        missing = [name for name in fields if f"`{name}`" not in section]
        assert missing == [], part


def test_inspect_tables_can_be_made_of_the_real_report(llm: LLM, capsys: Capsys) -> None:
    assert _run(llm, "inspect") == 0
    assert "input_embeds" in capsys.readouterr().out


def test_a_file_that_is_no_picture_is_one_sentence(
    llm: LLM, capsys: Capsys, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(b"not a picture")
    assert _run(llm, "run", "--image", str(tmp_path / "a.png"), "what?") == 2
    err = capsys.readouterr().err
    assert err.startswith("firstlight: ")
    assert "did not expect" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (None, "no model folder"),
        ("{}", "names no architecture"),
        ("{", "cannot be read"),
        ('{"architectures": ["NoSuchModel"]}', "no adapter knows the architecture 'NoSuchModel'"),
        ('{"architectures": ["Qwen3ForCausalLM"]}', "has no weights"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_one_sentence(
    capsys: Capsys, tmp_path: Path, config: str | None, sentence: str
) -> None:
    folder = tmp_path / "model"
    if config is not None:
        folder.mkdir()
        (folder / "config.json").write_text(config)
    assert main(["run", str(folder), "hello"]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_conversation_with_a_server_is_the_one_with_the_model_there(
    llm: LLM, picture: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = f"{picture} {QUESTION}\nand of what shape?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert _run(llm, "chat") == 0
    here, _ = capsys.readouterr()
    with running(llm.parts, keys=("one", "two")) as server:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        monkeypatch.setenv("FIRSTLIGHT_API_KEY", "two, one")
        assert main(["chat", "--server", f"{server.url}/v1"]) == 0
        there, err = capsys.readouterr()
        assert main(["chat", "--server", server.url, "--api-key", "wrong"]) == 2
    assert there == here
    assert err.count("first token") == 2
    assert "prefill graph" in err
    assert "decode graph 1" in err
    refused = capsys.readouterr().err
    assert "does not know the key" in refused
    assert "wrong" not in refused.replace("the API key is wrong", "")


def test_a_conversation_remembers_its_picture(
    llm: LLM, picture: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter([f"{picture} {QUESTION}", QUESTION, "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert _run(llm, "chat") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.count("first token") == 2
