"""What the engine counts itself, read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from firstlight import __version__
from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine.aio import AsyncEngine
from firstlight.engine.build import Parts
from firstlight.server.metric_specs import PREFIX, SPECS, Kind

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
        yield from self._build()

    def _one(self, name: str, value: float) -> Metric:
        return self._family(name, {(): value})

    def _family(self, name: str, values: Labelled) -> Metric:
        """A metric of the table; each key of ``values`` is its labels in the table's order."""
        spec = SPECS[name]
        kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
        family = kind(PREFIX + name, spec.text, labels=["model_name", *spec.labels])
        for given, value in values.items():
            family.add_metric([self.model, *given], value)
        return family

    def _requests(self) -> Iterator[Metric]:
        stats = self.engine.parts.scheduler.stats
        intake, loop = self.engine.intake, self.engine.loop
        yield self._one("num_requests_running", stats.running)
        waiting = max(intake.requests - stats.running, 0)
        yield self._one("num_requests_waiting", waiting)
        prepared = min(stats.waiting, waiting)
        reasons: Labelled = {
            ("memory",): float(prepared),
            ("preparation",): float(waiting - prepared),
        }
        yield self._family("num_requests_waiting_by_reason", reasons)
        yield self._one("waiting_bytes", intake.bytes)
        yield self._one("num_preemptions", stats.preempted)
        yield self._one("wasted_rows", self.engine.parts.engine.wasted_rows)
        yield self._one("engine_steps", stats.steps)
        yield self._one("engine_faults", loop.faults)

    def _memory(self) -> Iterator[Metric]:
        usage = self.engine.parts.kv.usage()
        pages = usage.pages
        full = _share(pages.free, pages.cached, pages.held)
        yield self._one("kv_cache_usage_perc", full)
        yield self._one("full_token_usage", full)
        windows = (_share(side.free, side.cached, side.held) for side in usage.sides)
        yield self._one("swa_token_usage", max(windows, default=0.0))
        spaces: Labelled = {
            (space.name, state): float(getattr(space, state))
            for space in (pages, *usage.sides)
            for state in ("free", "cached", "held")
        }
        yield self._family("kv_cache_pages", spaces)
        yield self._one("prefix_cache_queries", usage.lookups)
        yield self._one("prefix_cache_hits", usage.hits)
        yield self._one("prefix_cache_tokens", usage.cached_tokens)
        yield self._one("prefix_cache_evictions", pages.evictions)

    def _encoder(self) -> Iterator[Metric]:
        usage = self.engine.parts.encoder.usage()
        cache = usage.cache
        yield self._one("encoder_images", usage.encoded)
        yield self._one("encoder_calls", usage.calls)
        yield self._one("encoder_failures", usage.failed)
        yield self._one("encoder_cache_entries", cache.entries)
        yield self._one("embed_cache_bytes", cache.bytes)
        yield self._one("embed_cache_hits", cache.hits)
        yield self._one("embed_cache_misses", cache.misses)
        yield self._one("embed_cache_evictions", cache.evictions)
        pipeline = self.engine.parts.pipeline
        if pipeline is not None:
            artifacts = pipeline.usage()
            asked = artifacts.hits + artifacts.misses + artifacts.joins
            yield self._one("mm_cache_queries", asked)
            yield self._one("mm_cache_hits", artifacts.hits)
            yield self._one("mm_cache_evictions", artifacts.evictions)
            yield self._one("mm_cache_bytes", artifacts.bytes)

    def _graphs(self) -> Iterator[Metric]:
        counter = self.engine.parts.runners[Phase.DECODE].counter
        passes: Labelled = {(p.value, m.value): 0.0 for p in Phase for m in Mode}
        eager = (r for r in Reason if r is not Reason.CAPTURED)
        fallback: Labelled = {(p.value, r.value): 0.0 for r in eager for p in Phase}
        for (phase, reason), n in counter.counts().items():
            mode = Mode.GRAPH if reason is Reason.CAPTURED else Mode.EAGER
            passes[phase.value, mode.value] += n
            if mode is Mode.EAGER:
                fallback[phase.value, reason.value] += n
        yield self._family("graph_passes", passes)
        yield self._family("graph_fallback", fallback)
        rows: Labelled = {
            (phase.value, kind): float(n)
            for phase, count in counter.rows().items()
            for kind, n in (("live", count.live), ("padded", count.padding))
        }
        yield self._family("graph_tokens", rows)
        replays: Labelled = {(p.value, str(b)): float(n) for (p, b), n in counter.replays().items()}
        yield self._family("graph_replay", replays)

    def _captures(self) -> Iterator[Metric]:
        parts = self.engine.parts
        reports = {
            (phase.value, str(bucket.bucket)): bucket
            for phase, capture in parts.captures.items()
            for bucket in capture.buckets
        }
        seconds: Labelled = {key: report.seconds for key, report in reports.items()}
        yield self._family("graph_capture_seconds", seconds)
        held: Labelled = {key: float(report.bytes) for key, report in reports.items()}
        yield self._family("graph_memory_bytes", held)
        yield self._one("startup_graph_time_seconds", parts.capture_seconds)
        yield self._family("graph_verify_failures", _quarantined(parts))

    def _build(self) -> Iterator[Metric]:
        parts = self.engine.parts
        adapter = parts.model.adapter
        graphs_off = parts.config.graphs_off
        backend = "eager" if graphs_off else parts.runners[Phase.DECODE].backend.name
        facts = (
            __version__,
            adapter.architecture,
            str(adapter.dtype).removeprefix("torch."),
            str(adapter.device),
            backend,
        )
        yield self._family("build_info", {facts: 1.0})


def _share(free: int, cached: int, held: int) -> float:
    """Of a space's pages, those that requests hold; 0 to 1."""
    return held / (free + cached + held)


def _quarantined(parts: Parts) -> Labelled:
    return {
        (phase.value, str(size)): float(runner.buckets.state(size).value == "quarantined")
        for phase, runner in parts.runners.items()
        for size in runner.buckets.sizes
    }
