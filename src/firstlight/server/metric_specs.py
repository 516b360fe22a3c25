"""What the server measures: every metric's name, kind, labels and meaning, in one table.

The metrics themselves are made from it, and so is their page in the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

PREFIX = "firstlight_"
"""Begins the name of every metric."""


class Kind(StrEnum):
    """Prometheus's kinds."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scale(StrEnum):
    """What a histogram's buckets are for."""

    SECONDS = "seconds"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric.

    Attributes:
        name: without the prefix, and of a counter without ``_total``.
        labels: beside ``model_name``, which all have; each has few values, none from a request.
        scale: of a histogram.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    scale: Scale = Scale.SECONDS

    @property
    def exported(self) -> str:
        """The name that a query uses; that of a histogram's samples ends in a further suffix."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"


def _counter(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, text, labels)


def _seconds(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, Kind.HISTOGRAM, text, labels)


def _tokens(name: str, text: str) -> MetricSpec:
    return MetricSpec(name, Kind.HISTOGRAM, text, scale=Scale.TOKENS)


GROUPS: Mapping[str, tuple[MetricSpec, ...]] = MappingProxyType(
    {
        "Latency": (
            _seconds("time_to_first_token_seconds", "From a request's arrival to its first token."),
            _seconds("inter_token_latency_seconds", "Between two tokens of an answer."),
            _seconds(
                "request_time_per_output_token_seconds",
                "Mean time between the tokens of an answer, once for each answer.",
            ),
            _seconds("e2e_request_latency_seconds", "From a request's arrival to its end."),
            _seconds("request_queue_time_seconds", "Time in which nothing was done for a request."),
            _seconds("request_prefill_time_seconds", "Steps until a request's first token."),
            _seconds("request_decode_time_seconds", "Steps after a request's first token."),
            _seconds(
                "per_stage_req_latency_seconds",
                "Time of a request in each `stage`: queue, media, encode, prefill, decode.",
                "stage",
            ),
            _seconds("step_seconds", "One step of the engine."),
        ),
        "Requests and tokens": (
            _counter("request_success", "Answers, by `finished_reason`.", "finished_reason"),
            _counter(
                "request_failure",
                "Requests without a whole answer, by `code`; `client_left` is one.",
                "code",
            ),
            _counter(
                "http_requests",
                "Answered HTTP requests, by declared `route` and `status`; 499: the client left.",
                "route",
                "status",
            ),
            _counter("prompt_tokens", "Tokens of prompts."),
            _counter(
                "prompt_tokens_cached", "Tokens of prompts that the prefix cache already had."
            ),
            _counter("prompt_tokens_image", "Tokens of prompts that are rows of pictures."),
            _counter("generation_tokens", "Tokens of answers."),
            _tokens("request_prompt_tokens", "Tokens of a request's prompt."),
            _tokens("request_generation_tokens", "Tokens of a request's answers."),
            _tokens("iteration_tokens_total", "Rows of one step."),
        ),
        "Queue and engine": (
            _gauge("num_requests_running", "Choices that hold pages."),
            _gauge("num_requests_waiting", "Requests in the house that do not run."),
            _gauge(
                "num_requests_waiting_by_reason",
                "The same by `reason`: preparation (template, tokens, pictures, or their turn), "
                "memory (prepared, but no pages or no place in a step yet).",
                "reason",
            ),
            _gauge("waiting_bytes", "Bytes of the bodies of all requests in the house."),
            _counter("num_preemptions", "Times a request gave its pages back."),
            _counter(
                "wasted_rows",
                "Rows computed for requests that had ended before their tokens arrived, where "
                "steps overlap.",
            ),
            _counter("engine_steps", "Steps made."),
            _counter("engine_faults", "Times the engine failed and began anew."),
        ),
        "Memory": (
            _gauge("kv_cache_usage_perc", "Share of the pages that requests hold, 0 to 1."),
            _gauge("full_token_usage", "The same of layers that attend to the whole context."),
            _gauge(
                "swa_token_usage",
                "The same of layers with a sliding window; of several, the fullest. Without such "
                "layers 0.",
            ),
            _gauge("kv_cache_pages", "Pages by `state`, of each `space`.", "space", "state"),
            _counter("prefix_cache_queries", "Requests that asked the prefix cache."),
            _counter("prefix_cache_hits", "Requests that found tokens in the prefix cache."),
            _counter("prefix_cache_tokens", "Tokens found in the prefix cache."),
            _counter("prefix_cache_evictions", "Cached pages given up for others."),
        ),
        "Pictures and their caches": (
            _seconds(
                "media_process_seconds",
                "Of each picture, by `step`: fetch, decode, process.",
                "step",
            ),
            _seconds(
                "encoder_preprocess_seconds",
                "All of that for the pictures of a request together, by the clock.",
            ),
            _seconds("encoder_model_forward_seconds", "Encoding a request's pictures."),
            _counter("encoder_images", "Pictures that were encoded."),
            _counter("encoder_calls", "Calls of the vision tower."),
            _counter("encoder_failures", "Pictures that could not be encoded."),
            _gauge("encoder_cache_entries", "Encoded pictures kept."),
            _gauge("embed_cache_bytes", "Bytes of encoded pictures."),
            _counter("embed_cache_hits", "Encoded pictures found."),
            _counter("embed_cache_misses", "Encoded pictures not found."),
            _counter("embed_cache_evictions", "Encoded pictures given up for others."),
            _counter("mm_cache_queries", "Look-ups of prepared pictures."),
            _counter("mm_cache_hits", "Look-ups that found a prepared picture."),
            _counter("mm_cache_evictions", "Prepared pictures given up for others."),
            _gauge("mm_cache_bytes", "Bytes of prepared pictures."),
        ),
        "Graphs": (
            _counter("graph_passes", "Batches by how they ran.", "phase", "mode"),
            _counter("graph_fallback", "Batches that ran eager, by `reason`.", "phase", "reason"),
            _counter(
                "graph_tokens",
                "Rows of all batches by `kind`: live ones, and those of padding.",
                "phase",
                "kind",
            ),
            _counter("graph_replay", "Replays of each graph.", "phase", "bucket"),
            _gauge(
                "graph_capture_seconds",
                "Seconds that capturing each graph took.",
                "phase",
                "bucket",
            ),
            _gauge("graph_memory_bytes", "Bytes of each graph's own.", "phase", "bucket"),
            _gauge("startup_graph_time_seconds", "Seconds of all captures together."),
            _counter(
                "graph_verify_failures",
                "Graphs that were not proven equal to eager execution, and serve nobody.",
                "phase",
                "bucket",
            ),
        ),
        "Server": (
            _gauge(
                "build_info",
                "1; the version, and what is served and how, are in the labels.",
                "version",
                "architecture",
                "dtype",
                "device",
                "backend",
            ),
        ),
    }
)
"""Every metric, by the part of the server that it is about."""

SPECS: Mapping[str, MetricSpec] = MappingProxyType(
    {spec.name: spec for group in GROUPS.values() for spec in group}
)
"""Every metric by its name."""
