"""Puts an engine together: model, memory, runners, loop. Nothing else builds anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from firstlight.config import BUNDLED_MODEL, EngineConfig
from firstlight.core.reason import Phase
from firstlight.demo import model_path
from firstlight.engine.accounting import ledger_of
from firstlight.engine.admission import Admission
from firstlight.engine.costs import Costs
from firstlight.engine.encoder import Encoder, RowsEncoder
from firstlight.engine.encoder_graphs import EncoderGraphs, open_encoder_graphs
from firstlight.engine.engine import Engine
from firstlight.engine.explicit import check_captured
from firstlight.engine.flight import overlaps
from firstlight.engine.gpu import Gpu, open_gpu, tolerance_of
from firstlight.engine.ground import Ground, after_captures, before_captures, lay_ground
from firstlight.engine.heap import share_one_heap
from firstlight.engine.late import LateGraphs, first_buckets, may_be_late
from firstlight.engine.media_rules import MediaRules, check_media_rules
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.engine.native_tier import NativeTier
from firstlight.engine.pictures import check_media_settings, open_pipeline
from firstlight.engine.placement import Placement
from firstlight.engine.pool_memory import PoolMemory
from firstlight.engine.runners import Limits, RunnerBuilder, limits_of
from firstlight.engine.sanitizing import Sanitizer, SanitizingStep
from firstlight.engine.scheduling import Limits as SchedulerLimits
from firstlight.engine.scheduling import Scheduler, check_start
from firstlight.engine.sequence import Sequence
from firstlight.engine.step import Step
from firstlight.engine.warm import warm_encoder
from firstlight.errors import ConfigError
from firstlight.graphs import CaptureReport, Extent, GraphRunner
from firstlight.graphs.accounting import Ledger
from firstlight.graphs.backends.cuda import cuda_device
from firstlight.graphs.proof import ProofLevel, Prover
from firstlight.graphs.sanitizer import Report
from firstlight.media import ImagePipeline
from firstlight.memory import KVPool
from firstlight.memory.encoder_cache import EncoderCache
from firstlight.memory.integrity import check as check_memory
from firstlight.memory.kv_memory import KVMemory
from firstlight.models.fuse import FuseReport
from firstlight.models.loading import LoadedModel, load_model
from firstlight.models.registry import AdapterRegistry
from firstlight.sampling import Sampler

Progress = Callable[[Phase, int, int, int], None]
"""Called during capture with the phase, the next bucket, how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything an engine is made of.

    Attributes:
        pipeline: reads, decodes and prepares pictures; None for a model that takes text only.
        native: whether the compiled kernels run, and why not.
        fused: what was swapped for faster equals; None if fusing is off.
        late: what was captured, and what is still to be captured or proven.
        encoder_graphs: whether the vision tower runs from graphs, and why not.
        packed_bytes: memory that fusing took for weights.
        findings: what the sanitizer has found so far; None if it is off.
        gpu: the GPU and its memory; None on a CPU.
    """

    config: EngineConfig
    model: LoadedModel
    memory: MemoryPlan
    pool: KVPool
    kv: KVMemory
    placement: Placement
    pipeline: ImagePipeline | None
    encoder_cache: EncoderCache
    encoder: Encoder[Sequence]
    encoder_graphs: EncoderGraphs
    scheduler: Scheduler[Sequence]
    runners: Mapping[Phase, GraphRunner]
    late: LateGraphs
    admission: Admission
    engine: Engine
    native: NativeTier
    fused: FuseReport | None
    packed_bytes: int
    findings: Report | None
    gpu: Gpu | None = None

    @property
    def captures(self) -> Mapping[Phase, CaptureReport]:
        """What capturing each phase gave so far."""
        return self.late.captures

    @property
    def warm_seconds(self) -> float | None:
        """Of the encoder's first picture; None for a model that takes text only."""
        return self.encoder_graphs.warm_seconds

    @property
    def costs(self) -> Costs:
        """What padding costs, by phase; empty where it is taken to be free."""
        return self.late.costs

    @property
    def capture_seconds(self) -> float:
        """Seconds of all captures together."""
        return sum(report.seconds for report in self.captures.values())

    @property
    def ledger(self) -> Ledger:
        """Where the bytes and the seconds of the start went."""
        ledger = ledger_of(
            self.runners,
            self.captures,
            self.pool,
            self.costs,
            self.packed_bytes,
            self.warm_seconds,
        )
        return self.encoder_graphs.added_to(ledger)


def load(config: EngineConfig, adapters: AdapterRegistry | None = None) -> LoadedModel:
    """The configured checkpoint, loaded and probed."""
    check_media_settings(config)
    share_one_heap()  # before the threads that read weights start
    if config.on_gpu:
        cuda_device(config.device)  # before anything large is read
    template = _chat_template(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    bundled = config.model == BUNDLED_MODEL
    loaded = load_model(
        model_path() if bundled else config.model,
        dtype=config.dtype,
        device=config.device,
        cache_dir=config.cache_dir,
        trust_remote_code=config.trust_remote_code,
        registry=adapters,
    )
    check_media_rules(config, loaded)
    if template is not None:
        _check_syntax(config, template, loaded)
        loaded = replace(loaded, chat_template=template)
    # Its folder is an accident of packaging; people know the bundled model by its name.
    return replace(loaded, name=BUNDLED_MODEL) if bundled else loaded


def _chat_template(config: EngineConfig) -> str | None:
    """The configured template, read before anything is loaded."""
    path = config.chat_template
    if path is None:
        return None
    try:
        template = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"chat_template = {str(path)!r} cannot be read: {error}") from error
    if not template.strip():
        raise ConfigError(f"chat_template = {str(path)!r} is empty")
    return template


def _check_syntax(config: EngineConfig, template: str, model: LoadedModel) -> None:
    """Raise ConfigError for a template that is no Jinja, rather than at every request."""
    probe = [{"role": "user", "content": ""}]
    try:
        model.tokenizer.apply_chat_template(probe, chat_template=template, tokenize=False)
    except Exception as error:
        # Others are a template's own refusals of this message, which say nothing of real ones.
        if type(error).__name__ == "TemplateSyntaxError":
            path = str(config.chat_template)
            raise ConfigError(f"chat_template = {path!r} is no Jinja template: {error}") from error


def build(
    config: EngineConfig,
    model: LoadedModel,
    *,
    clock: Callable[[], float],
    progress: Progress | None = None,
    any_path: bool = False,
    gpu: Gpu | None = None,
    late: bool = False,
) -> Parts:
    """Memory, runners with captured graphs, and the loop around them.

    Args:
        late: leave the longer prefill buckets for :attr:`Parts.late`, which the caller sees to.
        gpu: the device that the model is on; None is the configured one.
        any_path: whether pictures may be read from any path, unless ``allowed_media_root`` is set.
    """
    ground = lay_ground(config, model, gpu or open_gpu(config))
    config = ground.config
    sanitizer = Sanitizer(ground.pool, gpu=config.on_gpu) if config.sanitize else None
    limits = limits_of(config, ground.memory)
    builder, runners = _runners(_runner_builder(config, ground, sanitizer), limits)
    ground = before_captures(config, ground, builder, runners)
    graphs = _captures(config, builder, runners, _now(config, ground, limits, late), progress)
    encoder_graphs = _encoder(config, model, builder, clock)
    ground = after_captures(config, ground, runners)
    pipeline = open_pipeline(config, model, any_path=any_path)
    loop = _loop(config, ground, limits, runners, encoder_graphs, sanitizer, clock=clock)
    return Parts(
        config=config,
        model=model,
        memory=ground.memory,
        pool=ground.pool,
        kv=ground.kv,
        placement=ground.placement,
        runners=runners,
        late=graphs,
        admission=_admission(config, ground, pipeline, clock),
        pipeline=pipeline,
        encoder_cache=loop.encoder_cache,
        encoder=loop.encoder,
        encoder_graphs=encoder_graphs,
        scheduler=loop.scheduler,
        engine=loop.engine,
        native=ground.native,
        fused=ground.fused,
        packed_bytes=ground.packed_bytes,
        findings=None if sanitizer is None else sanitizer.report,
        gpu=ground.gpu,
    )


def _encoder(
    config: EngineConfig, model: LoadedModel, builder: RunnerBuilder, clock: Callable[[], float]
) -> EncoderGraphs:
    """The graphs of the tower, if there are to be any, and one picture through it."""
    graphs = open_encoder_graphs(config, model.adapter, builder.backend)
    return replace(graphs, warm_seconds=warm_encoder(model, clock))


def _admission(
    config: EngineConfig,
    ground: Ground,
    pipeline: ImagePipeline | None,
    clock: Callable[[], float],
) -> Admission:
    return Admission(
        ground.model,
        max_context=ground.memory.max_context,
        page_size=ground.memory.page_size,
        pipeline=pipeline,
        limit=ground.memory.limit,
        seed=config.seed,
        clock=clock,
        rules=MediaRules.of(config),
    )


@dataclass(frozen=True, slots=True)
class _Loop:
    """What runs requests: the encoder, the scheduler, and the engine over both."""

    encoder_cache: EncoderCache
    encoder: Encoder[Sequence]
    scheduler: Scheduler[Sequence]
    engine: Engine


def _runner_builder(
    config: EngineConfig, ground: Ground, sanitizer: Sanitizer | None
) -> RunnerBuilder:
    adapter = ground.model.adapter
    pool_memory = PoolMemory(ground.pool, ground.kv, ground.memory, ground.placement)
    return RunnerBuilder(
        adapter.body(),
        adapter.contract,
        ground.pool,
        ground.memory,
        ground.placement,
        ground.owned,
        dtype=adapter.dtype,
        config=config,
        prover=Prover(
            adapter.contract,
            pool_memory,
            level=ProofLevel(config.proof),
            tolerance=tolerance_of(ground.gpu),
        ),
        one_row_per_request=ground.one_row_per_request,
        sanitizer=sanitizer,
        native=ground.native,
        gpu=ground.gpu,
    )


def _runners(
    builder: RunnerBuilder, limits: Limits
) -> tuple[RunnerBuilder, dict[Phase, GraphRunner]]:
    seqs = max((limits.max_num_seqs, *limits.decode_buckets[-1:]))
    rows = Extent(limits.max_batch_tokens, seqs)
    return builder, {
        Phase.PREFILL: builder.build(Phase.PREFILL, limits.prefill_buckets, rows),
        Phase.DECODE: builder.build(Phase.DECODE, limits.decode_buckets, Extent(seqs, seqs)),
    }


def _loop(
    config: EngineConfig,
    ground: Ground,
    limits: Limits,
    runners: Mapping[Phase, GraphRunner],
    graphs: EncoderGraphs,
    sanitizer: Sanitizer | None,
    *,
    clock: Callable[[], float],
) -> _Loop:
    """Raises ConfigError where a request of the longest context could not run."""
    cache = EncoderCache(config.encoder_cache_bytes)
    media: RowsEncoder = graphs.rows or ground.model.adapter
    encoder: Encoder[Sequence] = Encoder(media, cache, clock=clock)
    step_limits = SchedulerLimits(
        max_num_seqs=limits.max_num_seqs,
        max_batch_tokens=limits.max_batch_tokens,
        max_encoder_rows=config.max_encoder_tokens,
    )
    check_start(step_limits, ground.kv, ground.memory.max_context)
    scheduler = Scheduler[Sequence](ground.kv, step_limits, encoder)
    make = Step if sanitizer is None else partial(SanitizingStep, sides=sanitizer.sides)
    step = make(
        ground.model.adapter,
        runners,
        Sampler(),
        placement=ground.placement,
        one_row_per_request=ground.one_row_per_request,
    )
    engine = Engine(
        scheduler,
        encoder,
        step,
        stop_ids=frozenset(ground.model.eos_token_ids),
        clock=clock,
        when_idle=partial(check_memory, ground.kv) if config.debug else None,
        overlap=overlaps(config),
    )
    return _Loop(cache, encoder, scheduler, engine)


def _now(
    config: EngineConfig, ground: Ground, limits: Limits, late: bool
) -> dict[Phase, tuple[int, ...]]:
    """The buckets that are captured and proven at the start; of a phase that is not there, all."""
    if not (late and may_be_late(config)):
        return {}
    return {Phase.PREFILL: first_buckets(ground.model.adapter.decoder, limits.prefill_buckets)}


def _captures(
    config: EngineConfig,
    builder: RunnerBuilder,
    runners: Mapping[Phase, GraphRunner],
    now: Mapping[Phase, tuple[int, ...]],
    progress: Progress | None,
) -> LateGraphs:
    """Capture every bucket, or those of a phase that are wanted now; time what padding costs."""
    captures = {p: _capture(runner, now.get(p), progress) for p, runner in runners.items()}
    check_captured(config, runners)
    graphs = LateGraphs(runners, captures, builder.costs, config.padding_cost_seconds)
    graphs.settle()
    return graphs


def _capture(
    runner: GraphRunner, now: tuple[int, ...] | None, progress: Progress | None
) -> CaptureReport:
    if now == tuple(runner.buckets.sizes):
        now = None
    if progress is None:
        return runner.capture_all(now=now)

    def forward(done: int, total: int, bucket: int) -> None:
        progress(runner.phase, bucket, done, total)

    return runner.capture_all(forward, now=now)
