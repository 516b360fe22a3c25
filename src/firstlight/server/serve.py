"""Starts a server and ends it: loading, the first lines, signals."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

import uvicorn

from firstlight.config import EngineConfig, api_keys_from
from firstlight.engine.aio import AsyncEngine, LoopState, ServingLimits
from firstlight.engine.build import Parts, Progress, build, load
from firstlight.server.address import bind
from firstlight.server.answer_forms import AnswerForms
from firstlight.server.app import build_app
from firstlight.server.connection import patient
from firstlight.server.engine_metrics import EngineMetrics
from firstlight.server.keys import KeyRing, read_keys
from firstlight.server.logs import configure, log_event
from firstlight.server.metrics import Metrics
from firstlight.server.service import ModelFacts, Service
from firstlight.server.settings import ServerSettings
from firstlight.server.start_lines import start_lines
from firstlight.server.supervisor import ENGINE_FAILED, die_with_parent
from firstlight.server.token_text import TokenText
from firstlight.server.tracing import Tracing, open_tracing

_LOG = logging.getLogger("firstlight.server")


def _print(line: str) -> None:
    print(line, flush=True)  # whoever started the server may read it through a pipe


def open_parts(
    config: EngineConfig, progress: Progress | None = None, *, late: bool = False
) -> Parts:
    """The engine of a server: requests come from others, so no path of this machine is read.

    Args:
        late: leave the longer graphs for when nobody asks.
    """
    model = load(config)
    return build(
        config, model, clock=time.perf_counter, progress=progress, any_path=False, late=late
    )


def open_service(parts: Parts, settings: ServerSettings, tracing: Tracing | None = None) -> Service:
    """Everything but the application around it."""
    facts = ModelFacts.of(parts, settings.served_model_name)
    metrics = Metrics(facts.names[0])

    def on_step(seconds: float) -> None:
        metrics.observe("step_seconds", seconds)
        metrics.observe("iteration_tokens_total", parts.engine.landed_rows)

    limits = ServingLimits(
        max_waiting=settings.max_waiting,
        max_bytes=settings.max_waiting_bytes,
        threads=settings.admission_threads,
        ahead=settings.prepared_ahead,
        deadline_s=settings.request_seconds,
    )
    engine = AsyncEngine(parts, limits, clock=time.perf_counter, on_step=on_step)
    engine_metrics = EngineMetrics(engine, facts.names[0])
    metrics.add_source(engine_metrics)
    tokens = TokenText(parts.model.tokenizer)
    forms = AnswerForms.of(parts, settings)
    parts.admission.warm_forms()
    return Service(engine, facts, metrics, engine_metrics, settings, tokens, forms, tracing)


def key_ring(settings: ServerSettings, environ: Mapping[str, str] | None = None) -> KeyRing:
    """The keys of the settings, of their file and of the environment.

    Raises:
        ConfigError: the file cannot be read or holds none.
    """
    path = settings.api_key_file
    of_file = () if path is None else read_keys(path)
    return KeyRing([*settings.api_keys, *of_file, *api_keys_from(environ)])


_HURRY_S: Final = 1  # what clients get to take the end of their answers after a second Ctrl-C


class Server(uvicorn.Server):
    """uvicorn's server, whose end lets requests in flight finish, and tells those that cannot."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        on_ready: Callable[[str], None] | None = None,
        ends_when_failed: bool = False,
    ) -> None:
        super().__init__(config)
        self._ends_when_failed = ends_when_failed
        self._service = service
        self._on_ready = on_ready
        self._events: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._hurried = False

    async def startup(self, sockets: Any = None) -> None:
        """Listen; then say where."""
        self._events = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            log_event(_LOG, "serving", url=self.url, model=self._service.model.names[0])
            if self._on_ready is not None:
                self._on_ready(self.url)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.config.host, self.config.port
        for server in self.servers:
            for sock in server.sockets:
                port = sock.getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def failed(self) -> bool:
        """Whether the engine cannot be made clean."""
        return self._service.engine.loop.state is LoopState.FAILED

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; True ends the server."""
        if self._ends_when_failed and self.failed:
            log_event(_LOG, "the engine has failed", logging.ERROR)
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets requests finish; a second Ctrl-C tells them that they cannot, and a
        third one does not even do that.

        Meanwhile connections are taken, so that who comes is told instead of hung up on, and
        ``/health`` can say why.
        """
        if sig == signal.SIGINT:
            self._captured_signals.append(sig)  # what ends this way ends as by that signal
        if self._events is None:  # it does not even listen
            self.should_exit = True
        elif self._draining is None:
            self._events.call_soon_threadsafe(self._drain)
        elif sig == signal.SIGINT and not self.should_exit and not self._hurried:
            self._hurried = True
            self.config.timeout_graceful_shutdown = _HURRY_S
            self._events.call_soon_threadsafe(self._hurry)
        elif sig == signal.SIGINT:
            self.should_exit = self.force_exit = True

    def _hurry(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        self._draining = asyncio.ensure_future(self._drain_and_end(0))

    def _drain(self) -> None:
        if self._draining is None:
            seconds = self._service.settings.drain_seconds
            engine = self._service.engine
            log_event(_LOG, "draining", seconds=seconds, requests=engine.intake.requests)
            self._draining = asyncio.ensure_future(self._drain_and_end(seconds))

    async def _drain_and_end(self, seconds: float) -> None:
        try:
            await self._service.engine.drain(seconds)
        except asyncio.CancelledError:  # by a second Ctrl-C, which has begun another one
            return
        except Exception:
            self.should_exit = True
            raise
        self.should_exit = True


def serve(
    config: EngineConfig,
    settings: ServerSettings,
    *,
    progress: Progress | None = None,
    show: Callable[[str], None] = _print,
    sock: socket.socket | None = None,
    origins: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Callable[[], None]:
    """Load the model; what is returned says what was loaded, and serves until SIGTERM or Ctrl-C.

    Args:
        show: prints the lines about the start; ``verbose`` ones go into detail.
        sock: what to listen on, from a supervisor that starts the server anew when it ends; so it
            ends when its engine cannot be made clean. None binds the address of the settings.
        origins: settings field -> where its value is from, for these lines.

    Raises:
        ConfigError, ModelLoadError, ContractError: as the engine's start; also, before that, bad
            keys, an address that cannot be listened on, and spans without OpenTelemetry.
    """
    keys = key_ring(settings)
    tracing = open_tracing(settings)
    supervised = sock is not None
    listening = bind(settings.host, settings.port) if sock is None else sock
    if supervised:
        die_with_parent()
    configure(settings.log_format)
    parts = open_parts(config, progress, late=settings.late_graphs)
    service = open_service(parts, settings, tracing)

    def run() -> None:
        for line in start_lines(service, keys, origins, verbose=verbose):
            show(line)
        server = Server(
            uvicorn_config(service, keys),
            service,
            on_ready=lambda url: show(f"listening  {url}"),
            ends_when_failed=supervised,
        )
        _run(server, service, listening)

    return run


def _run(server: Server, service: Service, listening: socket.socket) -> None:
    """Serve until the end; an engine that failed ends the process so that a supervisor sees it."""
    try:
        server.run(sockets=[listening])
    finally:
        if service.parts.pipeline is not None:
            service.parts.pipeline.close()
    if server.failed:
        sys.exit(ENGINE_FAILED)


def uvicorn_config(service: Service, keys: KeyRing) -> uvicorn.Config:
    """How uvicorn serves it."""
    settings = service.settings
    return uvicorn.Config(
        build_app(service, keys),
        host=settings.host,
        log_config=None,
        access_log=False,
        server_header=False,
        http=patient(settings.body_seconds),
        ws="none",  # there is no WebSocket here, whatever library is installed
        lifespan="on",
        timeout_keep_alive=settings.keep_alive_seconds,
        # Requests end by themselves before that, or are ended; this is for what hangs.
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds + settings.body_seconds) + 1,
    )
