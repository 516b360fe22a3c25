"""What ``/metrics`` shows is what the table of metrics says."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from firstlight.core.reason import Phase, Reason
from firstlight.engine.build import Parts
from firstlight.server.metric_specs import GROUPS, PREFIX, SPECS, Kind
from tests.server.asking import CHAT, body, data_url
from tests.server.running import Running, running

PORTED = (
    *("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"),
    *("request_time_per_output_token_seconds", "request_queue_time_seconds"),
    *("request_prefill_time_seconds", "request_decode_time_seconds", "iteration_tokens_total"),
    *("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason"),
    *("kv_cache_usage_perc", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions"),
    *("mm_cache_queries", "mm_cache_hits", "prompt_tokens", "prompt_tokens_cached"),
    *("generation_tokens", "request_success", "encoder_preprocess_seconds"),
    *("encoder_model_forward_seconds", "encoder_cache_entries", "per_stage_req_latency_seconds"),
    *("full_token_usage", "swa_token_usage", "graph_passes", "graph_fallback", "graph_tokens"),
    *("graph_replay", "graph_capture_seconds", "graph_verify_failures", "media_process_seconds"),
    *("embed_cache_bytes", "embed_cache_hits", "embed_cache_misses", "embed_cache_evictions"),
)
"""Names that dashboards of other engines use, and those that only this one has need of."""


def families(http: httpx2.Client) -> dict[str, Metric]:
    """Every metric of the server by its name."""
    found = text_string_to_metric_families(http.get("/metrics").text)
    # prometheus-client adds when each counter and histogram began.
    return {family.name: family for family in found if not family.name.endswith("_created")}


@pytest.fixture(scope="module")
def fresh(parts: Parts) -> Iterator[dict[str, Metric]]:
    """The metrics of a server that nobody has asked anything."""
    with running(parts) as server, server.client() as http:
        yield families(http)


def test_every_metric_of_the_table_is_there_from_the_start_and_no_other(
    fresh: dict[str, Metric],
) -> None:
    own = {name: family for name, family in fresh.items() if name.startswith(PREFIX)}
    assert own.keys() == {PREFIX + name for name in SPECS}
    for name, spec in SPECS.items():
        assert own[PREFIX + name].type == spec.kind.value, name
        assert own[PREFIX + name].documentation == spec.text, name


def test_names_that_dashboards_know_are_kept() -> None:
    assert set(PORTED) - SPECS.keys() == set()


def test_a_metric_stands_in_one_group() -> None:
    assert sum(map(len, GROUPS.values())) == len(SPECS)


def test_every_sample_has_the_labels_of_the_table(server: Running) -> None:
    with server.client() as http:
        http.post(CHAT, json=body(data_url(seed=51), "What is it?", tokens=3))
        found = families(http)
    for name, spec in SPECS.items():
        wanted = {"model_name", *spec.labels}
        for sample in found[PREFIX + name].samples:
            assert sample.labels.keys() - {"le"} == wanted, sample


def test_counters_begin_at_zero_so_that_their_first_event_shows_in_a_rate(
    fresh: dict[str, Metric],
) -> None:
    late = {
        "http_requests",  # routes and statuses are known when they were asked for
        "graph_replay",
    }
    for name, spec in SPECS.items():
        if spec.kind is Kind.COUNTER and name not in late:
            assert fresh[PREFIX + name].samples, name
    reasons = {sample.labels["reason"] for sample in fresh[PREFIX + "graph_fallback"].samples}
    assert reasons == {reason.value for reason in Reason if reason is not Reason.CAPTURED}


def test_labels_take_no_value_from_a_request(server: Running) -> None:
    with server.client() as http:
        http.get("/secret-path?key=secret", headers={"x-request-id": "secret-id"})
        http.post(CHAT, json=body() | {"model": "secret-model"})
        text = http.get("/metrics").text
    assert "secret" not in text
    assert 'route="none",status="404"' in text


def test_requests_are_counted_by_their_declared_route_and_status(server: Running) -> None:
    def count(http: httpx2.Client) -> float:
        samples = families(http)[PREFIX + "http_requests"].samples
        wanted = {"route": "/v1/models/{name:path}", "status": "404"}
        return sum(s.value for s in samples if wanted.items() <= s.labels.items())

    with server.client() as http:
        before = count(http)
        http.get("/v1/models/nobody")
        assert count(http) - before == 1


def test_stages_of_a_request_with_a_picture_are_observed_once_each(server: Running) -> None:
    def counts(http: httpx2.Client) -> dict[str, float]:
        name = PREFIX + "per_stage_req_latency_seconds"
        samples = families(http)[name].samples
        return {s.labels["stage"]: s.value for s in samples if s.name.endswith("_count")}

    with server.client() as http:
        before = counts(http)
        http.post(CHAT, json=body(data_url(seed=52), "What is it?", tokens=2))
        after = counts(http)
    stages = ("queue", "media", "encode", "prefill", "decode")
    assert {s: after[s] - before.get(s, 0) for s in stages} == dict.fromkeys(stages, 1)


def test_build_info_says_what_is_served(fresh: dict[str, Metric], parts: Parts) -> None:
    (sample,) = fresh[PREFIX + "build_info"].samples
    assert sample.labels["architecture"] == parts.model.adapter.architecture
    assert sample.labels["dtype"] == "float32"
    assert sample.labels["backend"] == parts.runners[Phase.DECODE].backend.name
