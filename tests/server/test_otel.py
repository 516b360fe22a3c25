"""Spans of real requests, kept in memory by OpenTelemetry's own exporter."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import httpx2
import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="spans: OpenTelemetry is not installed")

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from firstlight.engine.build import Parts
from firstlight.server.otel import OpenTelemetryTracing, exporting
from tests.server.asking import CHAT, TEXT, body, data_url, streamed
from tests.server.running import Running, running

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
QUESTION = "The question that nobody else should read"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def traced(parts: Parts, exporter: InMemorySpanExporter) -> Iterator[Running]:
    """A server whose spans end up in ``exporter``."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with running(parts, tracing=OpenTelemetryTracing(provider)) as server:
        yield server


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    """Without those of other tests."""
    exporter.clear()
    return exporter


def finished(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    """The spans by name, once that of the request has ended."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = exporter.get_finished_spans()
        if any(span.kind is SpanKind.SERVER for span in found):
            return by_name(found)
        time.sleep(0.01)
    raise AssertionError("the span of the request has not ended")


def by_name(found: Sequence[ReadableSpan]) -> dict[str, list[ReadableSpan]]:
    """In the order of their beginnings."""
    named: dict[str, list[ReadableSpan]] = {}
    for span in sorted(found, key=lambda span: span.start_time or 0):
        named.setdefault(span.name, []).append(span)
    return named


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def ask(server: Running, *parts: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    with server.client() as http:
        return http.post(CHAT, json=body(*parts, tokens=4), headers=headers)


def test_a_request_is_a_span_with_its_stages_below(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    before = time.time_ns()
    answer = ask(traced, data_url(seed=60), QUESTION).json()
    found = finished(spans)
    (root,) = found[f"POST {CHAT}"]
    stages = ("queue", "prepare", "prefill", "decode")
    below = [span for name in stages for span in found[name]]
    assert all(span.parent and root.context for span in below)
    assert {span.parent.span_id for span in below if span.parent} == {root.context.span_id}
    assert {"media", "media.fetch", "media.decode", "media.process", "encode"} <= found.keys()
    assert found["media"][0].parent == found["prepare"][0].context
    assert found["media.process"][0].parent == found["media"][0].context
    assert found["encode"][0].parent == found["prefill"][0].context
    assert attributes(root)["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert attributes(root)["gen_ai.usage.output_tokens"] == 4
    assert attributes(root)["http.response.status_code"] == 200
    assert attributes(found["prefill"][0])["firstlight.modes"] == ("graph",)
    assert attributes(found["decode"][0])["firstlight.steps"] == 3
    assert before <= (root.start_time or 0) <= (root.end_time or 0) <= time.time_ns()


def test_stages_lie_within_what_they_are_part_of_and_follow_each_other(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    ask(traced, data_url(seed=61), QUESTION)
    found = finished(spans)
    slack = 2_000_000  # ns; two clocks are read one after the other
    named = {span.context.span_id: span for group in found.values() for span in group}
    for span in named.values():
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        above = named.get(span.parent.span_id) if span.parent else None
        if above is not None and above.start_time and above.end_time:
            assert above.start_time - slack <= span.start_time, span.name
            assert span.end_time <= above.end_time + slack, span.name
    order = [*found["queue"][:1], *found["prepare"], *found["queue"][1:]]
    order += [*found["prefill"], *found["decode"]]
    for one, following in pairwise(order):
        assert one.end_time == following.start_time, (one.name, following.name)


def test_the_trace_of_the_caller_goes_on(traced: Running, spans: InMemorySpanExporter) -> None:
    ask(traced, headers={"traceparent": f"00-{TRACE}-{CALLER}-01"})
    found = finished(spans)
    (root,) = found[f"POST {CHAT}"]
    assert root.parent is not None
    assert root.parent.span_id == int(CALLER, 16)
    ids = {span.context.trace_id for group in found.values() for span in group}
    assert ids == {int(TRACE, 16)}


def test_a_malformed_traceparent_begins_a_trace_of_its_own(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    assert ask(traced, headers={"traceparent": "00-nonsense-01"}).status_code == 200
    (root,) = finished(spans)[f"POST {CHAT}"]
    assert root.parent is None


def test_a_caller_that_is_not_sampled_is_not_recorded(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    ask(traced, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    assert traced.idle()
    assert spans.get_finished_spans() == ()


def test_the_id_of_the_request_is_that_of_its_answer_and_its_log(
    traced: Running, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "firstlight.server"):
        answer = ask(traced, headers={"x-request-id": "order-66"})
        (root,) = finished(spans)[f"POST {CHAT}"]
    assert answer.headers["x-request-id"] == "order-66"
    assert attributes(root)["firstlight.request_id"] == "order-66"
    (line,) = [r for r in caplog.records if getattr(r, "facts", {}).get("request") == "order-66"]
    assert line.__dict__["facts"]["trace"] == f"{root.context.trace_id:032x}"


def test_no_span_repeats_what_was_asked_or_answered(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    with traced.client() as http:
        url = f"{CHAT}?token=secret-query"
        headers = {"authorization": "Bearer secret-key"}
        answer = http.post(url, json=body(data_url(seed=62), QUESTION), headers=headers).json()
    told = str([span.to_json() for group in finished(spans).values() for span in group])
    said = answer["choices"][0]["message"]["content"]
    for hidden in ("secret-query", "secret-key", QUESTION, "data:image", "base64"):
        assert hidden not in told
    assert not said.strip() or said not in told


def test_a_stream_is_traced_until_its_end(traced: Running, spans: InMemorySpanExporter) -> None:
    with traced.client() as http:
        streamed(http, CHAT, body(tokens=5))
    found = finished(spans)
    (root,) = found[f"POST {CHAT}"]
    assert attributes(root)["gen_ai.usage.output_tokens"] == 5
    assert (found["decode"][0].end_time or 0) <= (root.end_time or 0) + 2_000_000


def test_several_prompts_of_one_request_have_their_stages_each_and_their_tokens_together(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    with traced.client() as http:
        asked = {"prompt": ["a", "b"], "max_tokens": 2, "ignore_eos": True}
        usage = http.post(TEXT, json=asked).json()["usage"]
    found = finished(spans)
    assert len(found["prefill"]) == 2
    (root,) = found[f"POST {TEXT}"]
    assert attributes(root)["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert attributes(root)["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == 4


def test_a_refusal_is_told_by_its_status_and_is_no_error_of_the_server(
    traced: Running, spans: InMemorySpanExporter
) -> None:
    with traced.client() as http:
        http.post(CHAT, json=body() | {"model": "other"})
    (root,) = finished(spans)[f"POST {CHAT}"]
    assert attributes(root)["http.response.status_code"] == 404
    assert attributes(root)["error.type"] == "model_not_found"
    assert root.status.status_code is StatusCode.UNSET


def test_a_fault_of_the_server_is_an_error_without_its_message(
    traced: Running, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise RuntimeError(QUESTION)

    monkeypatch.setattr(type(traced.service.parts.admission), "read_chat", fail)
    assert ask(traced).status_code == 500
    found = finished(spans)
    (root,) = found[f"POST {CHAT}"]
    assert root.status.status_code is StatusCode.ERROR
    assert QUESTION not in root.to_json()
    assert "prefill" not in found


def test_polls_are_not_traced(traced: Running, spans: InMemorySpanExporter) -> None:
    with traced.client() as http:
        for path in ("/health", "/metrics", "/"):
            assert http.get(path).status_code == 200
    assert spans.get_finished_spans() == ()


def test_fastapi_records_nothing_of_its_own(
    parts: Parts, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records would have the messages of refusals, and those may repeat a request."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # what an agent around us would set
    with running(parts) as server:
        assert ask(server).status_code == 200
        with server.client() as http:
            assert http.post(CHAT, json={"messages": QUESTION}).status_code == 400
    assert spans.get_finished_spans() == ()


def test_without_a_sample_a_request_is_answered_all_the_same(parts: Parts) -> None:
    tracing = OpenTelemetryTracing(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False))
    with running(parts, tracing=tracing) as server:
        assert ask(server).status_code == 200


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A server that takes whatever is sent; its address, and the bodies so far."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            zipped = self.headers.get("content-encoding") == "gzip"
            taken.append(gzip.decompress(body) if zipped else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", taken
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_gets_the_spans_at_the_latest_when_the_server_ends(parts: Parts) -> None:
    with collector() as (url, taken):
        with running(parts, tracing=exporting(url)) as server:
            assert ask(server).status_code == 200
        sent = ExportTraceServiceRequest.FromString(b"".join(taken))
    names = {s.name for r in sent.resource_spans for g in r.scope_spans for s in g.spans}
    assert {f"POST {CHAT}", "queue", "prepare", "prefill", "decode"} <= names


def test_a_collector_that_is_not_there_holds_up_nothing_for_longer_than_the_environment_says(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    began = time.monotonic()
    with running(parts, tracing=exporting("http://127.0.0.1:9/v1/traces")) as server:
        assert ask(server).status_code == 200
    assert time.monotonic() - began < 4


def test_the_environment_names_the_service_and_the_settings_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "eyes")
    for given, name in (("eyes", "eyes"), (None, "firstlight")):
        if given is None:
            monkeypatch.delenv("OTEL_SERVICE_NAME")
        tracing = exporting("http://127.0.0.1:9/v1/traces")
        resource = tracing.provider.resource.attributes
        tracing.close()
        assert resource["service.name"] == name
