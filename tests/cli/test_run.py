"""``firstlight run`` answers on standard output and explains itself on standard error."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.cli.fake_model import FakeModel

from firstlight.cli.main import main
from firstlight.cli.run import split_arguments
from firstlight.config import BUNDLED_MODEL
from firstlight.core.reason import Phase
from firstlight.errors import MediaError, RequestError
from firstlight.graphs.sanitizer import Finding, FindingKind

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a picture.png"
    path.write_bytes(b"only its path matters here")
    return path


def test_the_answer_alone_is_on_standard_output(capsys: Capsys) -> None:
    assert main(["run", "hello"], open_model=FakeModel("red").open) == 0
    out, err = capsys.readouterr()
    assert out == "red\n"
    assert err.startswith("first token 15.0 ms")


def test_images_come_before_the_prompt_in_the_order_given(picture: Path) -> None:
    model = FakeModel("red")
    other = picture.with_name("b.png")
    other.touch()
    main(["run", "-i", str(picture), "--image", str(other), "which?"], open_model=model.open)
    assert model.asked[0][-1]["content"] == [
        {"type": "image", "image": str(picture)},
        {"type": "image", "image": str(other)},
        {"type": "text", "text": "which?"},
    ]


def test_what_is_typed_about_pictures_reaches_the_request(picture: Path) -> None:
    model = FakeModel("red")
    options = ["--detail", "low", "--mm-processor-kwargs", '{"max_pixels": 4096}']
    assert main(["run", "-i", str(picture), *options, "which?"], open_model=model.open) == 0
    image = {"type": "image", "image": str(picture), "detail": "low"}
    assert model.asked[0][-1]["content"] == [image, {"type": "text", "text": "which?"}]
    assert model.kwargs == [{"max_pixels": 4096}]


def test_videos_stand_between_pictures_and_prompt(picture: Path) -> None:
    model = FakeModel("red")
    film = picture.with_name("a.mp4")
    film.touch()
    main(["run", "--video", str(film), "-i", str(picture), "what?"], open_model=model.open)
    assert model.asked[0][-1]["content"] == [
        {"type": "image", "image": str(picture)},
        {"type": "video", "video": str(film)},
        {"type": "text", "text": "what?"},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--video", "none.mp4"], "there is no video none.mp4"),
        (["--video", "https://example.org/a.mp4"], "videos from web addresses are not accepted"),
        (["--detail", "best"], "--detail = 'best'; accepted: auto, low, high, original"),
        (["--mm-processor-kwargs", "max_pixels=4096"], "accepted: a JSON object"),
        (["--mm-processor-kwargs", "[1]"], "accepted: a JSON object"),
        (["--max-image-pixels", "0"], "max_image_pixels = 0; accepted: an int from 1"),
    ],
)
def test_what_cannot_be_meant_about_pictures_is_refused_before_a_model_is_loaded(
    options: list[str], message: str, capsys: Capsys
) -> None:
    model = FakeModel("red")
    assert main(["run", *options, "which?"], open_model=model.open) == 2
    assert message in capsys.readouterr().err
    assert model.config is None


def test_an_address_is_passed_on_once_a_host_is_allowed() -> None:
    model = FakeModel("red")
    url = "https://example.org/a.png"
    options = ["--allowed-media-domains", "example.org", "--trusted-media-networks", "10.0.0.0/8"]
    assert main(["run", "-i", url, *options, "which?"], open_model=model.open) == 0
    assert model.asked[0][-1]["content"] == [
        {"type": "image", "image": url},
        {"type": "text", "text": "which?"},
    ]
    assert model.config is not None
    assert model.config.allowed_media_domains == ("example.org",)
    assert model.config.trusted_media_networks == ("10.0.0.0/8",)


def test_one_argument_is_the_prompt_of_the_bundled_model() -> None:
    assert split_arguments("why?", None) == (BUNDLED_MODEL, "why?")


def test_of_two_arguments_the_first_is_the_model() -> None:
    assert split_arguments("some/model", "why?") == ("some/model", "why?")


def test_a_model_without_a_prompt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RequestError, match="the prompt is missing behind it"):
        split_arguments(str(tmp_path), None)


@pytest.mark.parametrize("kind", ["name", "folder", "gguf"])
def test_one_argument_that_names_a_model_is_no_prompt(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    only = {"name": BUNDLED_MODEL, "folder": str(tmp_path), "gguf": str(tmp_path / "a.gguf")}[kind]
    with pytest.raises(RequestError, match="the prompt is missing behind it"):
        split_arguments(only, None)


def test_a_prompt_that_is_no_text_is_refused_before_a_model_is_loaded(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"\xff\xfe hi"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", typed)
    argument = b"\xff\xfe hi".decode(errors="surrogateescape")
    for line in (["-"], [argument], ["hi", "--system", argument]):
        model = FakeModel("a")
        assert main(["run", "some/model", *line], open_model=model.open) == 2
        assert "is not valid Unicode" in capsys.readouterr().err
        assert model.config is None


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("http://example.org/a.png", "pictures from web addresses are not accepted: no domain"),
        ("", "the path of the picture is empty"),
    ],
)
def test_what_is_no_path_of_a_picture_is_said_clearly(
    capsys: Capsys, image: str, said: str
) -> None:
    assert main(["run", "--image", image, "x"], open_model=FakeModel("a").open) == 2
    assert capsys.readouterr().err.startswith(f"firstlight: {said}")


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        split_arguments(prompt, None)


def test_a_prompt_longer_than_a_file_name_is_a_prompt() -> None:
    assert split_arguments("x" * 100_000, None)[1] == "x" * 100_000


def test_a_dash_reads_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert split_arguments("-", None)[1] == "from a pipe"


def test_json_is_one_object_with_everything_that_is_promised(capsys: Capsys) -> None:
    main(["run", "--json", "hello"], open_model=FakeModel("réd").open)
    printed = json.loads(capsys.readouterr().out)
    assert printed["text"] == "réd"
    assert printed["token_ids"] == [5, 6]
    assert printed["finish_reason"] == "stop"
    assert printed["usage"] == {
        "prompt_tokens": 88,
        "image_tokens": 60,
        "completion_tokens": 2,
        "cached_tokens": 0,
    }
    assert printed["timings_ms"] == {
        "load": 1500.0,
        "capture": 250.0,
        "media": 3.0,
        "encode": 4.0,
        "prefill": 8.0,
        "decode": 2.0,
        "ttft": 15.0,
        "total": 17.0,
    }
    assert (
        printed["steps"][0].items()
        >= {
            "phase": "prefill",
            "mode": "graph",
            "bucket": 96,
            "tokens": 88,
            "reason": "captured",
        }.items()
    )
    assert printed["steps"][1].items() >= {"mode": "eager", "reason": "not_captured"}.items()


def test_sampling_is_greedy_unless_asked_otherwise() -> None:
    model = FakeModel("a", "b")
    main(["run", "x"], open_model=model.open)
    options = ["-t", "0.5", "--top-p", "0.9", "--top-k", "3", "--seed", "7", "-n", "5"]
    main(["run", "x", *options, "--stop", "END", "--stop", "."], open_model=model.open)
    assert model.params[0].greedy
    p = model.params[1]
    assert (p.temperature, p.top_p, p.top_k, p.seed, p.max_tokens) == (0.5, 0.9, 3, 7, 5)
    assert p.stop == ("END", ".")


def test_engine_options_reach_the_configuration() -> None:
    model = FakeModel("a")
    options = ["--dtype", "float32", "--buckets", "64,128", "--page-size", "4", "--no-fuse"]
    options += ["--proof", "full", "--padding-cost", "free"]
    main(["run", "some/model", "x", *options], open_model=model.open)
    assert model.config is not None
    assert model.config.model == "some/model"
    assert model.config.dtype == "float32"
    assert model.config.prefill_buckets == (64, 128)
    assert model.config.page_size == 4
    assert model.config.fuse is False
    assert (model.config.proof, model.config.padding_cost) == ("full", "free")


def test_eager_turns_graphs_off() -> None:
    model = FakeModel("a")
    main(["run", "x", "--eager"], open_model=model.open)
    assert model.config is not None
    assert model.config.eager


def test_a_missing_picture_is_told_before_a_model_is_loaded(capsys: Capsys) -> None:
    model = FakeModel("a")
    assert main(["run", "--image", "no/such.png", "x"], open_model=model.open) == 2
    assert capsys.readouterr().err == "firstlight: there is no picture no/such.png\n"
    assert model.config is None


def test_an_error_of_the_engine_is_one_sentence_and_exit_code_2(capsys: Capsys) -> None:
    model = FakeModel(MediaError("a.png is not a picture\nthat can be read"))
    assert main(["run", "x", "--json"], open_model=model.open) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "firstlight: a.png is not a picture that can be read\n"


def test_a_system_message_comes_first() -> None:
    model = FakeModel("a")
    main(["run", "x", "--system", "be brief"], open_model=model.open)
    assert model.asked[0][0] == {"role": "system", "content": "be brief"}


FINDING = Finding(
    FindingKind.PADDING_READ,
    "slot input_embeds",
    Phase.PREFILL,
    64,
    "padding rows 5-63: NaN in live rows 0-4",
    "aten.mean.dim",
    "/somewhere/modeling.py:12",
)


def test_findings_are_a_table_on_standard_error_and_an_exit_code(capsys: Capsys) -> None:
    model = FakeModel("red")
    model.findings = (FINDING,)
    assert main(["run", "--sanitize", "hello"], open_model=model.open) == 1
    assert model.config is not None
    assert model.config.sanitize
    out, err = capsys.readouterr()
    assert out == "red\n"
    for word in ("padding_read", "slot input_embeds", "prefill", "64", FINDING.op, FINDING.where):
        assert word in err


def test_a_run_without_findings_says_so_and_ends_with_0(capsys: Capsys) -> None:
    assert main(["run", "--sanitize", "hello"], open_model=FakeModel("red").open) == 0
    assert "no findings" in capsys.readouterr().err


def test_findings_are_part_of_the_json_where_they_were_asked_for(capsys: Capsys) -> None:
    model = FakeModel("red", "red")
    model.findings = (FINDING,)
    main(["run", "--json", "--sanitize", "hello"], open_model=model.open)
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["kind"], f["where"]) for f in found] == [("padding_read", FINDING.where)]
    main(["run", "--json", "hello"], open_model=model.open)
    assert "findings" not in json.loads(capsys.readouterr().out)


def test_a_request_that_fails_under_the_sanitizer_still_shows_the_findings(capsys: Capsys) -> None:
    model = FakeModel(RequestError("the logits are NaN"))
    model.findings = (FINDING,)
    assert main(["run", "--sanitize", "hello"], open_model=model.open) == 2
    err = capsys.readouterr().err
    assert "padding_read" in err
    assert "the logits are NaN" in err
