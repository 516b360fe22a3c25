"""guidellm puts its load on the server, with texts and with pictures, and counts what we count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from firstlight.demo import model_path
from tests.clients.environments import run
from tests.clients.serving import Served

N = 4


def load(server: Served, folder: Path, data: str) -> list[dict[str, Any]]:
    """Requests that guidellm saw through, as it tells of them."""
    target = f"kind=openai_http,target={server.url},model=firstlight-demo"
    command = ["guidellm", "run", "--disable-console", "--backend", target]
    command += ["--profile", "kind=concurrent,streams=2"]
    command += ["--constraint", f"kind=max_requests,count={N}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={model_path()}"]
    command += ["--data", data, "--output", "kind=json,path=report.json"]
    done = run("guidellm", command, cwd=folder, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads((folder / "report.json").read_text())["benchmarks"]
    assert benchmark["requests"]["errored"] == []
    assert benchmark["requests"]["incomplete"] == []
    return list(benchmark["requests"]["successful"])


def test_texts_of_a_size_are_answered_with_as_many_tokens_as_asked(
    bundled: Served, tmp_path: Path
) -> None:
    before = bundled.metric("generation_tokens_total")
    done = load(bundled, tmp_path, "kind=synthetic_text,prompt_tokens=40,output_tokens=8")
    assert len(done) == N
    # It sends ignore_eos with the number of tokens that it wants.
    assert [one["output_metrics"]["text_tokens"] for one in done] == [8] * N
    # Its own count of the prompt is 40; the chat template's tokens come on top.
    assert all(40 <= one["input_metrics"]["text_tokens"] <= 50 for one in done)
    assert bundled.metric("generation_tokens_total") - before >= 8 * N


def test_pictures_without_a_text_are_answered(bundled: Served, tmp_path: Path) -> None:
    before = bundled.metric("prompt_tokens_image_total")
    pictures = "kind=synthetic_image,width=160,height=120,images_per_request=2,output_tokens=8"
    assert len(load(bundled, tmp_path, pictures)) == N
    assert bundled.metric("prompt_tokens_image_total") > before
