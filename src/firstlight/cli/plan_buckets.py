"""``firstlight plan-buckets``: the bucket list that serves a traffic's lengths fastest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstlight.cli.lengths import read_lengths
from firstlight.cli.options import PROGRESS, takes
from firstlight.cli.progress import open_with_bar
from firstlight.cli.session import Session
from firstlight.config import EngineConfig
from firstlight.errors import ConfigError

if TYPE_CHECKING:  # torch is imported once the arguments are known to be good
    from firstlight.cli.plan_costs import Costs
    from firstlight.graphs.planner import Budget

_MEASURED_SIZES = 8
_MEASURE_SECONDS = 30.0
_SMALLEST = 16
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a list may take, as typed."""

    count: int
    seconds: float | None
    megabytes: float | None
    align: int
    step: int | None

    def budget(self, once_seconds: float) -> Budget:
        """The budget of all buckets, less what the first capture takes for all of them."""
        from firstlight.graphs.planner import Budget

        seconds = self.seconds
        if seconds is not None:
            seconds -= once_seconds
            if seconds <= 0:
                raise ConfigError(
                    f"--budget-s {self.seconds:g} is used up by the {once_seconds:.2f} s that "
                    "the first capture takes to choose how operations are called"
                )
        return Budget(self.count, seconds, self.megabytes and self.megabytes * _MB)


def _budget(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Budget", show_default=False)


def _limits(
    count: Annotated[int, _budget("--max", text="Buckets at most; 24 if not given.")] = 24,
    budget_s: Annotated[
        float | None, _budget("--budget-s", text="Seconds of all captures.")
    ] = None,
    budget_mb: Annotated[
        float | None, _budget("--budget-mb", text="MB (1e6 bytes) of all graphs.")
    ] = None,
    align: Annotated[int, _budget("--align", text="Sizes are multiples of it.")] = 1,
    step: Annotated[
        int | None,
        _budget("--max-batch-tokens", text="Longer prompts run in steps of at most so many rows."),
    ] = None,
) -> _Limits:
    """The options of the panel Budget."""
    if step is not None and step < 1:
        raise ConfigError(f"--max-batch-tokens = {step}; accepted: an int from 1")
    return _Limits(count, budget_s, budget_mb, align, step)


@dataclass(frozen=True, slots=True)
class _Prices:
    """Where costs come from, as typed."""

    model: str | None
    file: Path | None
    fixed_ms: float | None
    row_ms: float | None
    eager_ms: float | None

    def costs(self, session: Session, longest: int, shown: bool) -> Costs:
        """Measured of a model, read from a file, or plain numbers."""
        from firstlight.cli.plan_costs import costs_of_file, costs_of_report, plain_costs

        numbers = (self.fixed_ms, self.row_ms, self.eager_ms)
        given = (self.model is not None, self.file is not None, numbers != (None, None, None))
        if sum(given) > 1:
            raise ConfigError("costs come from --model, from --cost or from numbers, not from two")
        if self.model is not None:
            config = EngineConfig.from_options(_measuring(self.model, longest))
            report: Mapping[str, Any] = open_with_bar(session, config, shown=shown).inspect()
            return costs_of_report(report, f"measured of {self.model}")
        if self.file is not None:
            return costs_of_file(self.file)
        row = 1.0 if self.row_ms is None else self.row_ms
        return plain_costs(self.fixed_ms or 0.0, row, self.eager_ms)


def _cost(*names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=text, rich_help_panel="Cost", metavar=metavar, show_default=False
    )


def _prices(
    model: Annotated[
        str | None, _cost("--model", text="Measure this model.", metavar="MODEL")
    ] = None,
    cost: Annotated[
        Path | None, _cost("--cost", text="Take what inspect --json wrote of a model.")
    ] = None,
    fixed_ms: Annotated[
        float | None, _cost("--fixed-ms", text="Without a model: ms of a replay; 0.")
    ] = None,
    row_ms: Annotated[
        float | None, _cost("--row-ms", text="Without a model: ms of each row; 1.")
    ] = None,
    eager_ms: Annotated[
        float | None,
        _cost("--eager-ms", text="Without a model: ms that eager takes more; else it is barred."),
    ] = None,
) -> _Prices:
    """The options of the panel Cost."""
    return _Prices(model, cost, fixed_ms, row_ms, eager_ms)


@takes(limits=_limits, prices=_prices)
def plan_buckets(
    context: typer.Context,
    lengths: Annotated[
        str,
        typer.Argument(
            metavar="LENGTHS",
            help="Lengths in rows: one int a line, or JSON lines. - is standard input.",
        ),
    ],
    field: Annotated[
        str | None, typer.Option("--field", help="Field of a JSON line, e.g. usage.prompt_tokens.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the list for --buckets: JSON, or text if .txt."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    no_progress: PROGRESS = False,
    *,
    limits: _Limits,
    prices: _Prices,
) -> None:
    """Choose the prefill buckets for LENGTHS.

    Those that serve prompts of these lengths in the least expected time.
    """
    observed = read_lengths(lengths, field)
    from firstlight.cli.plan_report import compare, print_comparison
    from firstlight.graphs import Lengths, planner

    label = f"{len(observed)} lengths from {min(observed)} to {max(observed)}"
    histogram = Lengths.counted(observed, label)
    if limits.step is not None:
        histogram = histogram.in_steps(limits.step)
    costs = prices.costs(context.obj, histogram.rows[-1], not no_progress)
    plan = planner.plan_buckets(
        histogram, costs.times, limits.budget(costs.once_seconds), costs.capture, limits.align
    )
    report = compare(plan, histogram, costs)
    if out is not None:
        _write(out, report)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print_comparison(report)
    if out is not None:
        print(f"written to {out}; use it with --buckets {out}")


def _measuring(model: str, longest: int) -> dict[str, object]:
    """Settings of an engine that measures a few sizes up to the longest."""
    low = min(_SMALLEST, longest)
    steps = max(_MEASURED_SIZES - 1, 1)
    sizes = {round(low * (longest / low) ** (i / steps)) for i in range(steps + 1)}
    return {
        "model": model,
        "prefill_buckets": tuple(sorted(sizes)),
        "decode_buckets": (1,),
        "padding_cost_seconds": _MEASURE_SECONDS,
    }


def _write(path: Path, report: Mapping[str, Any]) -> None:
    """The list as a file that ``prefill_buckets`` takes.

    Raises:
        ConfigError: there is nothing to write, or the file cannot be written.
    """
    sizes = report["buckets"]
    if not sizes:
        raise ConfigError("the best list is empty, since eager is always faster; nothing to write")
    if path.suffix == ".txt":
        text = f"# {report['lengths']}\n" + "".join(f"{size}\n" for size in sizes)
    else:
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    try:
        path.expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"the list cannot be written: {error}") from error
