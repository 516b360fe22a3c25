"""Public faults of starts: captures that nobody asked for, and checkpoints that lack files (cases
H38 and H39)."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from firstlight.core.reason import Phase
from firstlight.engine.build import Parts
from firstlight.errors import ModelLoadError
from firstlight.graphs.backends import tape
from firstlight.server.keys import KeyRing
from firstlight.server.serve import open_service
from firstlight.server.settings import ServerSettings
from firstlight.server.start_lines import start_lines
from tests.conftest import TinyCheckpoint
from tests.server.asking import CHAT, TEXT, body, data_url, error_of
from tests.server.running import running, tiny_parts

PREPARATION = ("preprocessor_config.json", "processor_config.json")


def copied(checkpoint: Path, folder: Path, *without: str) -> Path:
    """A copy of a checkpoint that lacks some files."""
    shutil.copytree(checkpoint, folder)
    for name in without:
        (folder / name).unlink(missing_ok=True)
    return folder


def closed(parts: Parts) -> None:
    if parts.pipeline is not None:
        parts.pipeline.close()


@pytest.mark.parametrize("ladder", [None, (32, 64, 128)], ids=["defaults", "three sizes"])
def test_a_start_says_each_size_with_its_seconds_and_bytes(
    ladder: tuple[int, ...] | None, tiny_checkpoint: TinyCheckpoint
) -> None:
    """H38: and is within its time."""
    began = time.perf_counter()
    parts = tiny_parts(tiny_checkpoint("qwen3_vl"), prefill_buckets=ladder)
    assert time.perf_counter() - began < 20
    captured = parts.runners[Phase.PREFILL].buckets.sizes
    assert captured
    if ladder is not None:
        assert tuple(captured) == ladder
    service = open_service(parts, ServerSettings())
    lines = list(start_lines(service, KeyRing(()), verbose=True))
    (first,) = [i for i, line in enumerate(lines) if line.startswith("prefill")]
    told = " ".join(lines[first:])
    for size in captured:
        assert str(size) in told
    assert told.count(" s") >= len(captured)
    assert "iB" in told
    closed(parts)


def test_with_graphs_off_nothing_is_captured(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H38"""

    def capture(*args: object, **kwargs: object) -> None:
        raise AssertionError("a capture was begun")

    monkeypatch.setattr(tape.TapeBackend, "capture", capture)
    parts = tiny_parts(tiny_checkpoint("qwen3_vl"), eager=True, prefill_buckets=None)
    assert not any(report.buckets for report in parts.captures.values())
    with running(parts) as server, server.client() as http:
        assert http.post(CHAT, json=body(data_url(), "What is it?")).status_code == 200
    closed(parts)
    with pytest.raises(AssertionError, match="a capture was begun"):
        tiny_parts(tiny_checkpoint("qwen3_vl"))


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (PREPARATION, "no image processor: neither preprocessor_config.json nor processor_config"),
        (PREPARATION[:1], "no image processor: preprocessor_config.json is missing, and processor"),
        (("tokenizer.json", "tokenizer_config.json"), "no tokenizer: none of tokenizer.json"),
        (("config.json",), "no config.json"),
        (("model.safetensors",), "safetensors"),
    ],
    ids=["no processor", "no preprocessor", "no tokenizer", "no config", "no weights"],
)
def test_a_checkpoint_that_lacks_files_ends_the_start_in_one_line_that_names_them(
    without: tuple[str, ...], message: str, tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    """H39"""
    folder = copied(tiny_checkpoint("qwen3_vl"), tmp_path / "model", *without)
    with pytest.raises(ModelLoadError) as caught:
        tiny_parts(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_describes_the_image_processor_may_stand_in_the_processors_file(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    """H39"""
    folder = copied(tiny_checkpoint("qwen3_vl"), tmp_path / "model")
    first, second = (folder / name for name in PREPARATION)
    second.write_text(json.dumps({"image_processor": json.loads(first.read_text())}))
    first.unlink()
    parts = tiny_parts(folder)
    assert parts.model.image_processor is not None
    closed(parts)


def test_an_unknown_image_processor_is_told_with_what_is_used_instead(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """H39"""
    folder = copied(tiny_checkpoint("qwen3_vl"), tmp_path / "model")
    path = folder / PREPARATION[0]
    fields = json.loads(path.read_text()) | {"image_processor_type": "NoSuchImageProcessor"}
    path.write_text(json.dumps(fields))
    with caplog.at_level(logging.WARNING, "firstlight.models"):
        closed(tiny_parts(folder))
    (record,) = [r for r in caplog.records if r.name == "firstlight.models"]
    assert "NoSuchImageProcessor" in record.getMessage()
    assert "Qwen2VLImageProcessor" in record.getMessage()


@pytest.fixture(scope="module")
def bare(
    tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    """A client of a server whose model has no chat template."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    parts = tiny_parts(copied(tiny_checkpoint("qwen3_vl"), folder, "chat_template.jinja"))
    with running(parts) as server, server.client() as http:
        yield http
    closed(parts)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_without_a_template_is_refused_before_any_header(
    stream: bool, bare: httpx2.Client
) -> None:
    """H39: with the option that mends it; prompts without a template are served."""
    for asked in (body(stream=stream), body(data_url(), "What is it?", stream=stream)):
        answer = bare.post(CHAT, json=asked)
        assert answer.status_code == 400
        error = error_of(answer)
        assert error["param"] == "messages"
        assert "chat_template" in error["message"]
    assert bare.post(TEXT, json={"prompt": "Hello", "max_tokens": 2}).status_code == 200


def test_a_template_may_stand_with_the_processor(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    """H39: where older checkpoints keep it."""
    template = (tiny_checkpoint("qwen3_vl") / "chat_template.jinja").read_text()
    for name in ("chat_template.json", "processor_config.json"):
        folder = copied(
            tiny_checkpoint("qwen3_vl"), tmp_path / name.split(".")[0], "chat_template.jinja"
        )
        (folder / name).write_text(json.dumps({"chat_template": template}))
        parts = tiny_parts(folder)
        assert parts.model.chat_template == template
        closed(parts)


def test_a_template_that_is_given_is_the_one_of_prompts_with_pictures_too(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    """H39"""
    template = (tiny_checkpoint("qwen3_vl") / "chat_template.jinja").read_text()
    path = tmp_path / "own.jinja"
    path.write_text("OWN TEMPLATE " + template)
    parts = tiny_parts(tiny_checkpoint("qwen3_vl"), chat_template=path)
    with running(parts) as server, server.client() as http:
        for asked in (body(), body(data_url(), "What is it?")):
            ids = http.post("/tokenize", json={"messages": asked["messages"]}).json()["tokens"]
            text = str(parts.model.tokenizer.decode(ids))
            assert text.startswith("OWN TEMPLATE")
            assert http.post(CHAT, json=asked).status_code == 200
    closed(parts)
