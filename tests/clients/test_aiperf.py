"""aiperf puts its load on the server; what it warns of is a fault of ours, so it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.demo import model_path
from tests.clients.environments import run
from tests.clients.serving import Served

N = 4
TOKENS = 24


def load(server: Served, folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Each request's metrics, and what aiperf printed. The tokenizer is a folder's: a name would be
    looked for on a hub."""
    command = ["aiperf", "profile", "-m", "firstlight-demo", "--url", server.url, "--streaming"]
    command += ["--tokenizer", str(model_path()), "--ui", "none", "--random-seed", "1"]
    command += ["--concurrency", "2", "--request-count", str(N), "--workers-max", "1"]
    command += ["--record-processor-service-count", "1", "--output-artifact-dir", str(folder)]
    command += ["--prompt-output-tokens-mean", str(TOKENS), "--extra-inputs", "ignore_eos:true"]
    done = run("aiperf", [*command, *arguments], cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "profile_export.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["error"] for record in records if record.get("error")] == []
    assert len(records) == N
    metrics = [{k: v["value"] for k, v in record["metrics"].items()} for record in records]
    return metrics, done.stdout


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_texts_are_counted_as_aiperf_counts_them(
    bundled: Served, tmp_path: Path, endpoint: str
) -> None:
    """Within its 10 %: it counts the text without the tokens of the chat template."""
    prompt = ["--prompt-input-tokens-mean", "300", "--endpoint-type", endpoint]
    # The bundled model goes on with special tokens once it has answered.
    whole = ["--extra-inputs", "skip_special_tokens:false"]
    metrics, printed = load(bundled, tmp_path, *prompt, *whole)
    assert "Warning" not in printed
    for request in metrics:
        assert request["usage_completion_tokens"] == TOKENS
        assert request["usage_prompt_cache_read_tokens"] >= 0
        assert request["usage_prompt_tokens_diff_pct"] <= 10


def test_pictures_of_several_sizes_are_answered(bundled: Served, tmp_path: Path) -> None:
    """aiperf cannot count the rows of a picture, so the server's counts are taken."""
    before = bundled.metric("prompt_tokens_image_total")
    sizes = ["--image-width-mean", "160", "--image-width-stddev", "40"]
    sizes += ["--image-height-mean", "120", "--image-format", "png", "--endpoint-type", "chat"]
    prompt = ["--prompt-input-tokens-mean", "20", "--use-server-token-count"]
    metrics, printed = load(bundled, tmp_path, *sizes, *prompt)
    assert "Warning" not in printed
    assert [request["output_sequence_length"] for request in metrics] == [TOKENS] * N
    assert bundled.metric("prompt_tokens_image_total") > before


def test_the_metrics_page_is_read(bundled: Served, tmp_path: Path) -> None:
    """It finds ``/metrics`` by itself and reads our histograms."""
    load(bundled, tmp_path, "--prompt-input-tokens-mean", "20", "--use-server-token-count")
    exported = json.loads((tmp_path / "server_metrics_export.json").read_text())
    assert "firstlight_time_to_first_token_seconds" in exported["metrics"]
