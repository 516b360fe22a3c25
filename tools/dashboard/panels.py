"""What the dashboard shows: rows of panels, and the query behind each line of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Filters that the variables at the top of the dashboard set.
OWN: Final = 'model_name=~"$model_name", instance=~"$instance"'
_RATE: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Query:
    """One line, or one for each value of its labels.

    Attributes:
        legend: how Grafana names it; ``{{label}}`` is the value of a label.
    """

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        unit: by Grafana's names.
        stacked: whether lines are parts of a whole.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    stacked: bool = False

    @property
    def share(self) -> bool:
        """Whether values go from 0 to 1."""
        return self.unit == "percentunit"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def rate(name: str, by: str = "", labels: str = "") -> str:
    """Per second, summed; ``by`` and ``labels`` in PromQL's own form."""
    return f"sum{_by(by)} (rate(firstlight_{name}{{{OWN}{labels}}}{_RATE}))"


def value(name: str, by: str = "", labels: str = "") -> str:
    """A gauge, summed over servers."""
    return f"sum{_by(by)} (firstlight_{name}{{{OWN}{labels}}})"


def quantile(q: float, name: str, by: str = "") -> str:
    """Of a histogram."""
    inner = rate(f"{name}_bucket", f"le, {by}" if by else "le")
    return f"histogram_quantile({q:g}, {inner})"


def mean(name: str, by: str = "") -> str:
    """Of a histogram; no line where nothing was observed."""
    return f"{rate(name + '_sum', by)} / {rate(name + '_count', by)}"


def part(of: str, whole: str) -> str:
    """A ratio, 0 to 1."""
    return f"{of} / {whole}"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _percentiles(title: str, text: str, name: str) -> Panel:
    queries = tuple(Query(quantile(q, name), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))
    return Panel(title, text, "s", queries)


def _hit_rate(title: str, text: str, hits: str, asked: str) -> Panel:
    return Panel(title, text, "percentunit", (Query(part(rate(hits), asked), "hits"),))


_EMBED_ASKED = f"({rate('embed_cache_hits_total')} + {rate('embed_cache_misses_total')})"
_BY_MODE = 'mode="graph"'

ROWS: Final = (
    Row(
        "Latency",
        (
            _percentiles(
                "Time to first token",
                "From a request's arrival to its first token.",
                "time_to_first_token_seconds",
            ),
            _percentiles(
                "Inter-token latency",
                "Between two tokens of an answer.",
                "inter_token_latency_seconds",
            ),
            _percentiles(
                "End to end",
                "From a request's arrival to its end.",
                "e2e_request_latency_seconds",
            ),
            Panel(
                "Mean time by stage",
                "Where the time of a request goes. Media and encode are of requests with pictures.",
                "s",
                (Query(mean("per_stage_req_latency_seconds", "stage"), "{{stage}}"),),
                stacked=True,
            ),
        ),
    ),
    Row(
        "Throughput",
        (
            Panel(
                "Tokens",
                "Prompt tokens that were computed and that the prefix cache had; answers.",
                "short",
                (
                    Query(
                        f"{rate('prompt_tokens_total')} - {rate('prompt_tokens_cached_total')}",
                        "prompt, computed",
                    ),
                    Query(rate("prompt_tokens_cached_total"), "prompt, cached"),
                    Query(rate("generation_tokens_total"), "answer"),
                ),
            ),
            Panel(
                "Answers",
                "Whole answers a second, by why they ended.",
                "reqps",
                (Query(rate("request_success_total", "finished_reason"), "{{finished_reason}}"),),
                stacked=True,
            ),
            Panel(
                "Steps",
                "Steps of the engine a second, and rows of one.",
                "short",
                (
                    Query(rate("engine_steps_total"), "steps a second"),
                    Query(mean("iteration_tokens_total"), "rows of a step"),
                ),
            ),
            Panel(
                "Time of a step",
                "A step runs one batch; nobody's next token comes before it ends.",
                "s",
                (
                    Query(quantile(0.5, "step_seconds"), "p50"),
                    Query(quantile(0.99, "step_seconds"), "p99"),
                ),
            ),
        ),
    ),
    Row(
        "Queue and memory",
        (
            Panel(
                "Requests",
                "Those that run, and those that wait, by what for.",
                "short",
                (
                    Query(value("num_requests_running"), "running"),
                    Query(value("num_requests_waiting_by_reason", "reason"), "waits: {{reason}}"),
                ),
                stacked=True,
            ),
            _percentiles(
                "Time in the queue",
                "Time in which nothing was done for a request.",
                "request_queue_time_seconds",
            ),
            Panel(
                "KV cache in use",
                "Share of pages that running requests hold.",
                "percentunit",
                (
                    Query(f"max(firstlight_full_token_usage{{{OWN}}})", "whole context"),
                    Query(f"max(firstlight_swa_token_usage{{{OWN}}})", "sliding window"),
                ),
            ),
            Panel(
                "KV pages",
                "Held by requests, kept for later ones, and free.",
                "short",
                (Query(value("kv_cache_pages", "state", ', space="virtual"'), "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Preemptions",
                "Times a request gave its pages back and is computed again later.",
                "short",
                (Query(rate("num_preemptions_total"), "a second"),),
            ),
            _hit_rate(
                "Prompt tokens from the prefix cache",
                "Share of prompt tokens that were not computed again.",
                "prompt_tokens_cached_total",
                rate("prompt_tokens_total"),
            ),
            Panel(
                "Memory of the process",
                "Resident, and the bodies of requests in the house.",
                "bytes",
                (
                    Query(
                        'process_resident_memory_bytes{instance=~"$instance"}',
                        "resident, {{instance}}",
                    ),
                    Query(value("waiting_bytes"), "bodies of requests"),
                ),
            ),
        ),
    ),
    Row(
        "Graphs",
        (
            Panel(
                "Coverage",
                "Share of batches that ran from a captured graph.",
                "percentunit",
                (
                    Query(
                        part(
                            rate("graph_passes_total", "phase", f", {_BY_MODE}"),
                            rate("graph_passes_total", "phase"),
                        ),
                        "{{phase}}",
                    ),
                ),
            ),
            Panel(
                "Padding",
                "Share of computed rows that were padding up to a bucket.",
                "percentunit",
                (
                    Query(
                        part(
                            rate("graph_tokens_total", "phase", ', kind="padded"'),
                            rate("graph_tokens_total", "phase"),
                        ),
                        "{{phase}}",
                    ),
                ),
            ),
            Panel(
                "Why batches ran eager",
                "Batches a second that ran outside graphs, by reason.",
                "short",
                (
                    Query(
                        rate("graph_fallback_total", "phase, reason") + " > 0",
                        "{{phase}}: {{reason}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Replays by bucket",
                "Which graphs are used; those that never are may be left out.",
                "short",
                (Query(rate("graph_replay_total", "phase, bucket"), "{{phase}} {{bucket}}"),),
                stacked=True,
            ),
            Panel(
                "Memory of graphs",
                "Bytes of the graphs' own.",
                "bytes",
                (Query(value("graph_memory_bytes", "phase"), "{{phase}}"),),
                stacked=True,
            ),
            Panel(
                "Quarantined graphs",
                "Graphs that were not proven equal to eager execution. They serve nobody.",
                "short",
                (Query(value("graph_verify_failures_total", "phase"), "{{phase}}"),),
            ),
        ),
    ),
    Row(
        "Pictures and their caches",
        (
            Panel(
                "Preparing a picture",
                "95th percentile by step.",
                "s",
                (Query(quantile(0.95, "media_process_seconds", "step"), "{{step}}"),),
            ),
            _percentiles(
                "Encoding a request's pictures",
                "The vision tower.",
                "encoder_model_forward_seconds",
            ),
            _hit_rate(
                "Prepared pictures found",
                "Share of look-ups of what the processor made.",
                "mm_cache_hits_total",
                rate("mm_cache_queries_total"),
            ),
            _hit_rate(
                "Encoded pictures found",
                "Share of look-ups of the vision tower's rows.",
                "embed_cache_hits_total",
                _EMBED_ASKED,
            ),
            Panel(
                "Bytes of caches",
                "Of prepared and of encoded pictures.",
                "bytes",
                (
                    Query(value("mm_cache_bytes"), "prepared"),
                    Query(value("embed_cache_bytes"), "encoded"),
                ),
                stacked=True,
            ),
            Panel(
                "Evictions",
                "Entries given up for others, a second.",
                "short",
                (
                    Query(rate("mm_cache_evictions_total"), "prepared"),
                    Query(rate("embed_cache_evictions_total"), "encoded"),
                    Query(rate("prefix_cache_evictions_total"), "pages"),
                ),
            ),
        ),
    ),
    Row(
        "Errors",
        (
            Panel(
                "Requests without a whole answer",
                "By code; what a refusal's body says. client_left: the caller closed first.",
                "reqps",
                (Query(rate("request_failure_total", "code") + " > 0", "{{code}}"),),
                stacked=True,
            ),
            Panel(
                "HTTP answers",
                "All requests by status.",
                "reqps",
                (Query(rate("http_requests_total", "status"), "{{status}}"),),
                stacked=True,
            ),
            Panel(
                "Faults",
                "Times the engine began anew, and pictures that could not be encoded.",
                "short",
                (
                    Query(
                        f"sum(increase(firstlight_engine_faults_total{{{OWN}}}{_RATE}))", "engine"
                    ),
                    Query(
                        f"sum(increase(firstlight_encoder_failures_total{{{OWN}}}{_RATE}))",
                        "pictures",
                    ),
                ),
            ),
        ),
    ),
)
