"""``firstlight inspect``: what a model declares and what was captured for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from firstlight.cli.configured import Given, configured
from firstlight.cli.lengths import read_lengths
from firstlight.cli.options import MODEL, PROGRESS
from firstlight.cli.progress import open_with_bar
from firstlight.cli.session import Session


@configured()
def inspect(
    context: typer.Context,
    model: MODEL = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            help="File of prompt lengths on which to expect the waste of padding.",
            show_default=False,
        ),
    ] = None,
    no_progress: PROGRESS = False,
    *,
    given: Given,
) -> None:
    """Show a model's input contract, static buffers and graphs.

    And what would run eager, and why.
    """
    config = given.engine()
    session: Session = context.obj
    observed = None if lengths is None else read_lengths(lengths)
    report = open_with_bar(session, config, shown=not no_progress).inspect()
    if observed is not None:
        report = _with_waste(report, observed)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    from firstlight.cli.tables import print_report

    print_report(report)


def _with_waste(report: Mapping[str, Any], observed: list[int]) -> dict[str, Any]:
    """The report with one more line of expected waste, on the lengths observed."""
    from firstlight.cli.plan_report import waste_row
    from firstlight.graphs import Lengths

    label = f"{len(observed)} lengths from {min(observed)} to {max(observed)}"
    row = waste_row(report, Lengths.counted(observed, label))
    return {**report, "waste": [*report["waste"], row]}
