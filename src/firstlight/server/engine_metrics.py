"""What the engine counts itself, read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine.aio import AsyncEngine
from firstlight.engine.build import Parts

_NAME = "firstlight_"
Labelled = dict[tuple[str, ...], float]


@dataclass(slots=True, eq=False)
class EngineMetrics:
    """The engine's numbers as Prometheus metrics, as they were at the last refresh."""

    engine: AsyncEngine
    model: str
    _latest: list[Metric] = field(default_factory=list)

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._latest

    def refresh(self) -> None:
        """Read them anew; between two steps, as nothing else keeps them still."""
        self._latest = list(self._read())

    def _read(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._memory()
        yield from self._encoder()
        yield from self._graphs()
        yield from self._captures()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        return self._family(GaugeMetricFamily, name, text, (), {(): value})

    def _count(self, name: str, text: str, value: float) -> Metric:
        return self._family(CounterMetricFamily, name, text, (), {(): value})

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Labelled,
    ) -> Metric:
        family = kind(_NAME + name, text, labels=["model_name", *labels])
        for given, value in values.items():
            family.add_metric([self.model, *given], value)
        return family

    def _requests(self) -> Iterator[Metric]:
        stats = self.engine.parts.scheduler.stats
        intake, loop = self.engine.intake, self.engine.loop
        yield self._gauge("num_requests_running", "Requests that hold pages.", stats.running)
        waiting = max(intake.requests - stats.running, 0)
        yield self._gauge("num_requests_waiting", "Requests in the house that do not run.", waiting)
        yield self._gauge("waiting_bytes", "Bytes of the bodies in the house.", intake.bytes)
        yield self._count(
            "num_preemptions", "Times a request gave its pages back.", stats.preempted
        )
        yield self._count("engine_steps", "Steps made.", stats.steps)
        yield self._count("engine_faults", "Times the engine failed and began anew.", loop.faults)

    def _memory(self) -> Iterator[Metric]:
        usage = self.engine.parts.kv.usage()
        pages = usage.pages
        total = pages.free + pages.cached + pages.held
        yield self._gauge(
            "kv_cache_usage_perc", "Share of the pages that requests hold.", pages.held / total
        )
        yield self._family(
            GaugeMetricFamily,
            "kv_cache_pages",
            "Pages by state, of each space.",
            ("space", "state"),
            {
                (space.name, state): float(getattr(space, state))
                for space in (pages, *usage.sides)
                for state in ("free", "cached", "held")
            },
        )
        yield self._count("prefix_cache_queries", "Requests that asked.", usage.lookups)
        yield self._count("prefix_cache_hits", "Requests that found a page.", usage.hits)
        yield self._count("prefix_cache_tokens", "Tokens found.", usage.cached_tokens)
        yield self._count("prefix_cache_evictions", "Cached pages given up.", pages.evictions)

    def _encoder(self) -> Iterator[Metric]:
        usage = self.engine.parts.encoder.usage()
        cache = usage.cache
        yield self._count("encoder_images", "Pictures that were encoded.", usage.encoded)
        yield self._count("encoder_calls", "Calls of the vision tower.", usage.calls)
        yield self._count("encoder_failures", "Pictures that could not be.", usage.failed)
        yield self._gauge("embed_cache_bytes", "Bytes of encoded pictures.", cache.bytes)
        yield self._gauge("encoder_cache_entries", "Encoded pictures kept.", cache.entries)
        yield self._count("embed_cache_hits", "Encoded pictures found.", cache.hits)
        yield self._count("embed_cache_misses", "... and not found.", cache.misses)
        yield self._count("embed_cache_evictions", "... and given up.", cache.evictions)
        if self.engine.parts.pipeline is not None:
            artifacts = self.engine.parts.pipeline.usage()
            asked = artifacts.hits + artifacts.misses + artifacts.joins
            yield self._count("mm_cache_queries", "Look-ups of prepared pictures.", asked)
            yield self._count("mm_cache_hits", "Of these, pictures found.", artifacts.hits)
            yield self._count(
                "mm_cache_evictions", "Prepared pictures given up.", artifacts.evictions
            )
            yield self._gauge("mm_cache_bytes", "Bytes of prepared pictures.", artifacts.bytes)

    def _graphs(self) -> Iterator[Metric]:
        counter = self.engine.parts.runners[Phase.DECODE].counter
        counts = counter.counts()
        passes: dict[tuple[str, ...], float] = {}
        for (phase, reason), n in counts.items():
            mode = Mode.GRAPH if reason is Reason.CAPTURED else Mode.EAGER
            key = (phase.value, mode.value)
            passes[key] = passes.get(key, 0) + n
        yield self._family(
            CounterMetricFamily,
            "graph_passes",
            "Batches by how they ran.",
            ("phase", "mode"),
            passes,
        )
        yield self._family(
            CounterMetricFamily,
            "graph_fallback",
            "Batches that ran eager, by reason.",
            ("phase", "reason"),
            {
                (p.value, r.value): float(n)
                for (p, r), n in counts.items()
                if r is not Reason.CAPTURED
            },
        )
        rows = counter.rows()
        yield self._family(
            CounterMetricFamily,
            "graph_tokens",
            "Rows of all batches: live ones, and padding.",
            ("phase", "kind"),
            {
                (phase.value, kind): float(n)
                for phase, count in rows.items()
                for kind, n in (("live", count.live), ("padded", count.padding))
            },
        )
        yield self._family(
            CounterMetricFamily,
            "graph_replay",
            "Replays of each graph.",
            ("phase", "bucket"),
            {(p.value, str(b)): float(n) for (p, b), n in counter.replays().items()},
        )

    def _captures(self) -> Iterator[Metric]:
        parts = self.engine.parts
        reports = {
            (phase.value, str(bucket.bucket)): bucket
            for phase, capture in parts.captures.items()
            for bucket in capture.buckets
        }
        yield self._family(
            GaugeMetricFamily,
            "graph_capture_seconds",
            "Seconds that capturing each graph took.",
            ("phase", "bucket"),
            {key: report.seconds for key, report in reports.items()},
        )
        yield self._family(
            GaugeMetricFamily,
            "graph_memory_bytes",
            "Bytes of each graph's own.",
            ("phase", "bucket"),
            {key: float(report.bytes) for key, report in reports.items()},
        )
        yield self._gauge(
            "startup_graph_time_seconds", "Seconds of all captures.", parts.capture_seconds
        )
        yield self._family(
            GaugeMetricFamily,
            "graph_verify_failures",
            "1 for each graph that was not proven equal to eager execution.",
            ("phase", "bucket"),
            _quarantined(parts),
        )


def _quarantined(parts: Parts) -> Labelled:
    return {
        (phase.value, str(size)): float(runner.buckets.state(size).value == "quarantined")
        for phase, runner in parts.runners.items()
        for size in runner.buckets.sizes
    }
