"""Prometheus metrics: histograms of requests, and whatever the engine counts itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric

from firstlight.core.output import Completion, FinishReason
from firstlight.core.timing import Timings
from firstlight.engine.aio import Waits
from firstlight.server.failures import SERVING_CODES
from firstlight.server.metric_specs import PREFIX, SPECS, Kind, MetricSpec, Scale

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = {
    Scale.SECONDS: (
        *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75),
        *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0),
    ),
    Scale.TOKENS: tuple(float(2**i) for i in range(15)),
}
_OWN_COUNTERS: Final = (
    *("prompt_tokens", "prompt_tokens_cached", "prompt_tokens_image", "generation_tokens"),
    *("request_success", "request_failure", "http_requests"),
)


class Source(Protocol):
    """Gives metrics that are read when somebody asks, e.g. the engine's own counts."""

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        ...


class Metrics:
    """All metrics of one server, in a registry of its own; all have the label ``model_name``.

    Beside them are prometheus-client's ``process_*``, where the system tells them.
    """

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        ProcessCollector(registry=self.registry)
        self._histograms = {
            name: self._histogram(spec)
            for name, spec in SPECS.items()
            if spec.kind is Kind.HISTOGRAM
        }
        self._counters = {name: self._counter(SPECS[name]) for name in _OWN_COUNTERS}
        self._start_at_zero()

    def _histogram(self, spec: MetricSpec) -> Histogram:
        labels = ["model_name", *spec.labels]
        buckets = _BUCKETS[spec.scale]
        own = self.registry
        return Histogram(PREFIX + spec.name, spec.text, labels, buckets=buckets, registry=own)

    def _counter(self, spec: MetricSpec) -> Counter:
        labels = ["model_name", *spec.labels]
        return Counter(PREFIX + spec.name, spec.text, labels, registry=self.registry)

    def _start_at_zero(self) -> None:
        """A counter that first appears with its first event has no rate that shows that event."""
        for name, histogram in self._histograms.items():
            if not SPECS[name].labels:
                histogram.labels(self._model)
        for name, counter in self._counters.items():
            if not SPECS[name].labels:
                counter.labels(self._model)
        for reason in (FinishReason.STOP, FinishReason.LENGTH):
            self._counters["request_success"].labels(self._model, reason.value)
        for code in (*SERVING_CODES, "client_left"):
            self._counters["request_failure"].labels(self._model, code)

    def add_source(self, source: Any) -> None:
        """Show the metrics of a :class:`Source` as well."""
        self.registry.register(source)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into a histogram."""
        self._histograms[name].labels(self._model, *labels).observe(value)

    def count(self, name: str, n: float, *labels: str) -> None:
        """Add to a counter."""
        self._counters[name].labels(self._model, *labels).inc(n)

    def failed(self, code: str) -> None:
        """A request got no whole answer."""
        self.count("request_failure", 1, code)

    def answered(self, route: str, status: int) -> None:
        """An HTTP request was answered, whatever it asked."""
        self.count("http_requests", 1, route, str(status))

    def finished(self, waits: Waits, completions: Sequence[Completion]) -> None:
        """A request was answered, with all its choices."""
        first = completions[0]
        tokens = sum(c.usage.completion_tokens for c in completions)
        for completion in completions:
            self.count("request_success", 1, completion.finish_reason.value)
            after = completion.usage.completion_tokens - 1
            if after > 0:
                each = completion.timings.decode_s / after
                self.observe("request_time_per_output_token_seconds", each)
        self.count("prompt_tokens", first.usage.prompt_tokens)
        self.count("prompt_tokens_cached", first.usage.cached_tokens)
        self.count("prompt_tokens_image", first.usage.image_tokens)
        self.count("generation_tokens", tokens)
        self.observe("request_prompt_tokens", first.usage.prompt_tokens)
        self.observe("request_generation_tokens", tokens)
        self._stages(waits, first.timings)
        self._media(first.timings)
        if waits.total_s is not None:
            self.observe("e2e_request_latency_seconds", waits.total_s)

    def _stages(self, waits: Waits, timings: Timings) -> None:
        self.observe("request_queue_time_seconds", waits.queue_s)
        self.observe("request_prefill_time_seconds", timings.prefill_s)
        self.observe("request_decode_time_seconds", timings.decode_s)
        stages = {"queue": waits.queue_s, "prefill": timings.prefill_s, "decode": timings.decode_s}
        if timings.pictures:
            stages |= {"media": timings.media_s, "encode": timings.encode_s}
        for stage, seconds in stages.items():
            self.observe("per_stage_req_latency_seconds", seconds, stage)

    def _media(self, timings: Timings) -> None:
        if not timings.pictures:
            return
        self.observe("encoder_preprocess_seconds", timings.media_s)
        self.observe("encoder_model_forward_seconds", timings.encode_s)
        for picture in timings.pictures:
            self.observe("media_process_seconds", picture.read_s, "fetch")
            self.observe("media_process_seconds", picture.decode_s, "decode")
            self.observe("media_process_seconds", picture.process_s, "process")

    def render(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
