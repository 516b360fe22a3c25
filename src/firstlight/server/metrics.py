"""Prometheus metrics: histograms of requests, and whatever the engine counts itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from firstlight.core.output import Completion
from firstlight.engine.aio import Waits

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = "firstlight_"
_LATENCY = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0),
)
_TOKENS = tuple(float(2**i) for i in range(15))
_HISTOGRAMS = {
    "time_to_first_token_seconds": ("From a request's arrival to its first token.", _LATENCY),
    "inter_token_latency_seconds": ("Between two tokens of an answer.", _LATENCY),
    "request_time_per_output_token_seconds": ("Mean of that, per request.", _LATENCY),
    "e2e_request_latency_seconds": ("From a request's arrival to its end.", _LATENCY),
    "request_queue_time_seconds": ("In which nothing was done for a request.", _LATENCY),
    "request_prefill_time_seconds": ("Steps until a request's first token.", _LATENCY),
    "request_decode_time_seconds": ("Steps after a request's first token.", _LATENCY),
    "encoder_model_forward_seconds": ("Encoding a request's pictures.", _LATENCY),
    "step_seconds": ("One step of the engine.", _LATENCY),
    "iteration_tokens_total": ("Rows of one step.", _TOKENS),
    "request_prompt_tokens": ("Tokens of a request's prompt.", _TOKENS),
    "request_generation_tokens": ("Tokens of a request's answers.", _TOKENS),
}
_PICTURES = ("media_process_seconds", "Of each picture, by `step`: fetch, decode, process.")
_COUNTERS = {
    "prompt_tokens": "Tokens of prompts.",
    "prompt_tokens_cached": "Of these, tokens found in the prefix cache.",
    "prompt_tokens_image": "Of these, rows of pictures.",
    "generation_tokens": "Tokens of answers.",
}
_TOTALS = _COUNTERS | {
    "request_success": "Answers, by `finished_reason`.",
    "request_failure": "Requests without a whole answer, by `code`; `client_left` is one.",
}


def described() -> list[tuple[str, str, str]]:
    """Name, kind and meaning of the metrics here; those of the engine say theirs themselves."""
    histograms = [(name, text) for name, (text, _) in _HISTOGRAMS.items()]
    rows = [(f"`{_NAME}{name}`", "histogram", text) for name, text in (*histograms, _PICTURES)]
    return [*rows, *((f"`{_NAME}{name}_total`", "counter", text) for name, text in _TOTALS.items())]


class Source(Protocol):
    """Gives metrics that are read when somebody asks, e.g. the engine's own counts."""

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        ...


class Metrics:
    """All metrics of one server, in a registry of its own; all have the label ``model_name``."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model}
        self._histograms = {
            name: Histogram(
                _NAME + name, text, ["model_name"], buckets=buckets, registry=self.registry
            ).labels(model)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self._counters = {
            name: Counter(_NAME + name, text, ["model_name"], registry=self.registry).labels(model)
            for name, text in _COUNTERS.items()
        }
        self._pictures = Histogram(
            _NAME + _PICTURES[0],
            _PICTURES[1],
            ["model_name", "step"],
            buckets=_LATENCY,
            registry=self.registry,
        )
        self._finished = self._counter("request_success", "finished_reason")
        self._failed = self._counter("request_failure", "code")
        for reason in ("stop", "length"):
            self._finished.labels(model, reason)

    def _counter(self, name: str, label: str) -> Counter:
        labels = ["model_name", label]
        return Counter(_NAME + name, _TOTALS[name], labels, registry=self.registry)

    def add_source(self, source: Any) -> None:
        """Show the metrics of a :class:`Source` as well."""
        self.registry.register(source)

    def observe(self, name: str, value: float) -> None:
        """Put a value into a histogram."""
        self._histograms[name].observe(value)

    def failed(self, code: str) -> None:
        """A request got no whole answer."""
        self._failed.labels(self._labels["model_name"], code).inc()

    def finished(self, waits: Waits, completions: Sequence[Completion]) -> None:
        """A request was answered, with all its choices."""
        first = completions[0]
        tokens = sum(c.usage.completion_tokens for c in completions)
        for completion in completions:
            reason = completion.finish_reason.value
            self._finished.labels(self._labels["model_name"], reason).inc()
            after = completion.usage.completion_tokens - 1
            if after > 0:
                each = completion.timings.decode_s / after
                self.observe("request_time_per_output_token_seconds", each)
        for name, n in (
            ("prompt_tokens", first.usage.prompt_tokens),
            ("prompt_tokens_cached", first.usage.cached_tokens),
            ("prompt_tokens_image", first.usage.image_tokens),
            ("generation_tokens", tokens),
        ):
            self._counters[name].inc(n)
        self.observe("request_prompt_tokens", first.usage.prompt_tokens)
        self.observe("request_generation_tokens", tokens)
        self.observe("request_queue_time_seconds", waits.queue_s)
        self.observe("request_prefill_time_seconds", first.timings.prefill_s)
        self.observe("request_decode_time_seconds", first.timings.decode_s)
        if first.timings.pictures:
            self.observe("encoder_model_forward_seconds", first.timings.encode_s)
        for picture in first.timings.pictures:
            steps = {
                "fetch": picture.read_s,
                "decode": picture.decode_s,
                "process": picture.process_s,
            }
            for step, seconds in steps.items():
                self._pictures.labels(self._labels["model_name"], step).observe(seconds)
        if waits.total_s is not None:
            self.observe("e2e_request_latency_seconds", waits.total_s)

    def render(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
