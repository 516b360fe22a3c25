"""Models, tokens, version, health, metrics and graphs."""

from __future__ import annotations

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from firstlight import __version__
from firstlight.engine.build import Parts
from tests.server.asking import CHAT, TEXT, body, data_url, error_of
from tests.server.running import Running, running


def metrics(http: httpx2.Client) -> dict[str, float]:
    """Every sample by its name and the labels beside the model's name."""
    found = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
            key = sample.name + "".join(f",{k}={v}" for k, v in sorted(labels.items()))
            found[key] = sample.value
    return found


def test_the_model_says_what_it_takes_and_how_wide_it_is(http: httpx2.Client, parts: Parts) -> None:
    (model,) = http.get("/v1/models").json()["data"]
    assert model["id"] == "qwen3_vl"
    assert model["modalities"] == ["text", "image", "video"]
    assert model["max_model_len"] == parts.memory.max_context
    assert model["embed_width"] == parts.model.adapter.contract.input_embeds_hidden_size
    assert http.get("/v1/models/qwen3_vl").json() == model
    assert http.get("/v1/models/other").status_code == 404


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/health", "/version", "/v1/graphs"])
def test_a_head_is_answered_like_a_get_without_its_body(http: httpx2.Client, path: str) -> None:
    """Load generators look so for the page of metrics."""
    asked = http.head(path)
    assert asked.status_code == 200
    assert asked.content == b""
    assert asked.headers["content-type"] == http.get(path).headers["content-type"]


def test_a_path_that_there_is_not_is_refused_with_where_all_are_listed(
    http: httpx2.Client,
) -> None:
    assert http.get("/v1/chat").json()["error"]["message"].endswith("/openapi.json lists all paths")


def test_a_model_may_be_served_under_other_names(parts: Parts) -> None:
    with running(parts, served_model_name=("a", "org/b")) as server, server.client() as http:
        assert [m["id"] for m in http.get("/v1/models").json()["data"]] == ["a", "org/b"]
        assert http.get("/v1/models/org/b").json()["root"] == "a"
        assert http.post(CHAT, json=body(model="org/b")).json()["model"] == "org/b"
        assert http.post(CHAT, json=body()).json()["model"] == "a"
        assert http.post(CHAT, json=body(model="qwen3_vl")).status_code == 404


def test_tokens_of_a_text_come_back_as_that_text(http: httpx2.Client) -> None:
    answer = http.post("/tokenize", json={"prompt": "Hello é🫠", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    back = http.post("/detokenize", json={"tokens": answer["tokens"]}).json()
    assert back == {"prompt": "Hello é🫠"}


def test_what_a_user_types_never_becomes_a_control_token(http: httpx2.Client, parts: Parts) -> None:
    """H44: the number of each special id depends on the messages' structure alone."""
    tokenizer = parts.model.tokenizer
    typed = "x" + "".join(tokenizer.get_added_vocab()) + "\nobey"
    ids = [
        http.post(
            "/tokenize",
            json={
                "messages": [
                    {"role": "system", "content": text},
                    {"role": "user", "content": [{"type": "text", "text": text}]},
                ]
            },
        ).json()["tokens"]
        for text in (typed, "plain")
    ]
    special = set(tokenizer.get_added_vocab().values())
    counts = [{i: own.count(i) for i in special} for own in ids]
    assert counts[0] == counts[1]
    assert len(ids[0]) > len(ids[1])
    assert typed in http.post("/detokenize", json={"tokens": ids[0]}).json()["prompt"]


def test_metrics_count_what_was_done(http: httpx2.Client) -> None:
    before = metrics(http)
    asked = body(data_url(seed=50), "What is it?", tokens=5)
    usage = http.post(CHAT, json=asked).json()["usage"]
    http.post(CHAT, json=asked)
    http.post(CHAT, json=body() | {"messages": []})
    after = metrics(http)

    def grown(name: str) -> float:
        return after[f"firstlight_{name}"] - before.get(f"firstlight_{name}", 0)

    assert grown("prompt_tokens_total") == 2 * usage["prompt_tokens"]
    assert grown("generation_tokens_total") == 10
    assert grown("prompt_tokens_cached_total") > 0
    assert grown("request_success_total,finished_reason=length") == 2
    assert grown("time_to_first_token_seconds_count") == 2
    assert grown("inter_token_latency_seconds_count") == 8
    assert grown("e2e_request_latency_seconds_count") == 2
    # Of the prompt that comes again one row is computed, which runs through a decode graph too.
    assert grown("graph_passes_total,mode=graph,phase=decode") == 8 + 1
    assert grown("graph_replay_total,bucket=1,phase=decode") == 8 + 1
    assert grown("graph_tokens_total,kind=live,phase=prefill") > usage["prompt_tokens"] // 2
    assert grown("embed_cache_misses_total") == 1
    assert grown("mm_cache_queries_total") == 2
    assert grown("mm_cache_hits_total") == 1
    assert grown("media_process_seconds_count,step=decode") == 2
    assert after["firstlight_num_requests_running"] == 0
    assert after["firstlight_graph_capture_seconds,bucket=64,phase=prefill"] > 0


def test_the_report_of_graphs_says_what_ran_from_them(http: httpx2.Client) -> None:
    before = http.get("/v1/graphs").json()["coverage"]["decode"]
    http.post(CHAT, json=body("Asked by no other test.", tokens=4))
    report = http.get("/v1/graphs").json()
    after = report["coverage"]["decode"]
    assert after["batches"] - before["batches"] == after["graph"] - before["graph"] == 3
    assert after["share"] == pytest.approx(1, abs=0.5)
    prefill = report["buckets"]["prefill"]
    assert [bucket["size"] for bucket in prefill] == [64, 256]
    assert all(bucket["state"] == "ready" and bucket["seconds"] > 0 for bucket in prefill)


def test_version_and_health(http: httpx2.Client, server: Running) -> None:
    assert http.get("/version").json() == {"version": __version__}
    assert http.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", CHAT, 405), ("GET", f"{TEXT}/", 404), ("GET", "/docs", 404)],
)
def test_what_is_not_there_is_an_error_in_openais_form(
    method: str, path: str, status: int, http: httpx2.Client
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    error_of(answer)


def test_a_clients_own_name_for_its_request_comes_back_if_it_is_harmless(
    http: httpx2.Client,
) -> None:
    for given, kept in (("my-request.1", True), ("a b", False), ("x" * 65, False)):
        answer = http.get("/version", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is kept
