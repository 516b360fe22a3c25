"""What the commands need of an engine, and how they get one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from firstlight.config import EngineConfig
from firstlight.core.output import Completion
from firstlight.core.reason import Phase
from firstlight.core.sampling_params import SamplingParams

if TYPE_CHECKING:  # its package imports torch, and --help does without
    from firstlight.graphs.sanitizer import Finding

Message = Mapping[str, object]
CaptureProgress = Callable[[Phase, int, int, int], None]
"""Called after each captured bucket with its phase, its size, how many are done, of how many."""


class Talker(Protocol):
    """Whoever answers a conversation: a model here, or one behind a server."""

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams,
        *,
        mm_processor_kwargs: Mapping[str, object] | None,
    ) -> Iterator[str | Completion]: ...


class ChatModel(Talker, Protocol):
    """The part of :class:`firstlight.LLM` that the commands use."""

    @property
    def load_seconds(self) -> float: ...

    @property
    def capture_seconds(self) -> float: ...

    @property
    def findings(self) -> Sequence[Finding]: ...

    def inspect(self) -> Mapping[str, object]: ...

    def sanitize(self) -> Sequence[Finding]: ...

    def verify(self, progress: CaptureProgress | None) -> Mapping[str, Any]: ...


class OpenModel(Protocol):
    """Loads a model and captures its graphs."""

    def __call__(
        self, config: EngineConfig, progress: CaptureProgress | None, *, late: bool = False
    ) -> ChatModel:
        """The model of ``config``.

        Args:
            late: leave graphs out that one question hardly needs; see :class:`firstlight.LLM`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation of the command line.

    Attributes:
        open_model: how a model is opened.
        debug: whether an error that nobody foresaw ends the command with its traceback.
        own_process: whether the process is this command's alone; not where a program calls it.
    """

    open_model: OpenModel
    debug: bool = False
    own_process: bool = False

    def opening(self, config: EngineConfig) -> AbstractContextManager[None]:
        """What the imports and the opening of a model stand in."""
        if not self.own_process:
            return nullcontext()
        from firstlight.cli.quick_start import quick_start

        return quick_start(stand_ins=not config.trust_remote_code, cache_dir=config.cache_dir)


def open_llm(
    config: EngineConfig, progress: CaptureProgress | None, *, late: bool = False
) -> ChatModel:
    """The real engine; torch and transformers are imported here and not earlier."""
    from firstlight.engine.llm import LLM

    return LLM(config=config, progress=progress, late=late)
