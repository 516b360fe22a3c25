"""The timing line says how each phase ran, in words that the docs list."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.fake_model import completion

from firstlight.cli.report import timing_line
from firstlight.core.output import Completion, Usage
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.core.timing import StepRecord, Timings


def _with(timings: Timings, tokens: int) -> Completion:
    usage = Usage(prompt_tokens=8, completion_tokens=tokens)
    return replace(completion("x"), timings=timings, usage=usage)


def test_the_line_gives_the_first_token_its_parts_and_how_each_phase_ran() -> None:
    assert timing_line(completion("x")) == (
        "first token 15.0 ms (media 3.0 ms, encoder 4.0 ms, prefill 8.0 ms) · "
        "2 tokens, 2.0 ms per further token · prefill graph 96 (88 live) · "
        "decode eager (not_captured)"
    )


def test_equal_steps_are_counted() -> None:
    step = StepRecord(Decision(Phase.DECODE, 1, 1, Reason.CAPTURED), 0.001)
    timings = Timings(ttft_s=0.01, decode_s=0.003, steps=[step] * 3)
    assert timing_line(_with(timings, 4)) == (
        "first token 10.0 ms · 4 tokens, 1.0 ms per further token · decode graph 1 x3"
    )


def test_one_token_has_no_further_ones() -> None:
    assert timing_line(_with(Timings(ttft_s=12.34), 1)) == "first token 12.3 s · 1 token"
