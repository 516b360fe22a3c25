"""An engine that answers from a list, for tests of the commands alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firstlight.cli.session import CaptureProgress, Message
from firstlight.config import EngineConfig
from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.timing import StepRecord, Timings
from firstlight.graphs.sanitizer import Finding

REPORT: dict[str, object] = {
    "model": "fake",
    "architecture": "FakeForConditionalGeneration",
    "input_embeds_hidden_size": 24,
    "declared": True,
    "hidden_size": 8,
    "segments": [
        {"name": "tokens", "start": 0, "width": 8},
        {"name": "deepstack.0", "start": 8, "width": 16},
    ],
    "planes": [],
    "slots": [
        {
            "phase": "prefill",
            "name": "input_embeds",
            "shape": [64, 24],
            "dtype": "float32",
            "bytes": 6144,
            "policy": "zero",
        }
    ],
    "buckets": {
        "prefill": [
            {"size": 64, "state": "ready", "bytes": 2048, "seconds": 0.25, "ops": 7, "why": ""}
        ],
        "decode": [],
    },
    "backend": "tape",
    "attention": "cpu",
    "memory": {"n_pages": 9, "kv_bytes": 4096},
    "fused": {"swapped": {"FakeAttention": 2}, "left": {}},
    "eager": {
        "prefill": [
            {"when": "more than 64 rows", "reason": "no_bucket", "detail": "the largest has 64"}
        ],
        "decode": [],
    },
    "decisions": [],
}

PROOF: dict[str, Any] = {
    "model": "fake",
    "level": "full",
    "passed": True,
    "failed": 0,
    "rows": [
        {"phase": "prefill", "bucket": 64, "cases": 10, "worst": 0.0, "verdict": "passed"},
        {"phase": "decode", "bucket": 1, "cases": 8, "worst": 0.0, "verdict": "passed"},
    ],
    "findings": [],
}


def completion(text: str, prompt_tokens: int = 88) -> Completion:
    """An answer of two tokens: one replayed prefill, one eager decode step."""
    steps = [
        StepRecord(Decision(Phase.PREFILL, 96, prompt_tokens, Reason.CAPTURED), 0.008),
        StepRecord(
            Decision(Phase.DECODE, None, 1, Reason.NOT_CAPTURED, "bucket 1 is not captured"), 0.002
        ),
    ]
    return Completion(
        text=text,
        token_ids=(5, 6),
        finish_reason=FinishReason.STOP,
        usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=2, image_tokens=60),
        timings=Timings(
            media_s=0.003,
            encode_s=0.004,
            prefill_s=0.008,
            decode_s=0.002,
            ttft_s=0.015,
            total_s=0.017,
            steps=steps,
        ),
    )


class FakeModel:
    """Gives ``answers`` in turn and remembers what it was asked; an exception is raised instead."""

    load_seconds = 1.5
    capture_seconds = 0.25
    findings: tuple[Finding, ...] = ()
    proof: Mapping[str, Any] = PROOF

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[list[Message]] = []
        self.kwargs: list[Mapping[str, object] | None] = []
        self.params: list[SamplingParams] = []
        self.config: EngineConfig | None = None

    def open(
        self, config: EngineConfig, progress: CaptureProgress | None, *, late: bool = False
    ) -> FakeModel:
        """Stands in for loading: keeps the configuration and reports one captured bucket."""
        self.config = config
        if progress is not None:
            progress(Phase.PREFILL, 64, 1, 1)
        return self

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams,
        *,
        mm_processor_kwargs: Mapping[str, object] | None = None,
    ) -> Iterator[str | Completion]:
        self.kwargs.append(mm_processor_kwargs)
        self.asked.append(list(messages))
        self.params.append(sampling_params)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        half = len(answer) // 2
        yield answer[:half]
        yield answer[half:]
        yield completion(answer)

    def sanitize(self) -> tuple[Finding, ...]:
        return self.findings

    def inspect(self) -> Mapping[str, object]:
        return REPORT

    def verify(self, progress: CaptureProgress | None) -> Mapping[str, Any]:
        return self.proof
