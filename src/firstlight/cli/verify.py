"""``firstlight verify``: are the captured graphs equal to eager execution?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from firstlight.cli.configured import Given, configured
from firstlight.cli.findings import findings_as_json, print_findings
from firstlight.cli.options import MODEL, PROGRESS, SANITIZE
from firstlight.cli.progress import capture_bar, open_with_bar
from firstlight.cli.session import Session


@configured(less=("proof",))
def verify(
    context: typer.Context,
    model: MODEL = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
    no_progress: PROGRESS = False,
    sanitize: SANITIZE = False,
    *,
    given: Given,
) -> None:
    """Prove every graph of a model in full.

    Its replay against eager, its padding, each input alone, and graphs in shuffled order.

    With --sanitize, sample prompts for every bucket then run under the sanitizer.

    Ends with 0 if everything passed, with 1 if anything failed, with 2 if nothing could be checked.
    """
    # Everything is proven below; a proof at the start would only be made twice.
    config = given.engine(proof="off", sanitize=sanitize)
    session: Session = context.obj
    llm = open_with_bar(session, config, shown=not no_progress)
    with capture_bar(not no_progress, "checking the merge", "proving") as progress:
        report = llm.verify(progress)
    findings = llm.sanitize() if sanitize else ()
    if as_json:
        if sanitize:
            report = {**report, "sanitizer": findings_as_json(findings)}
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    if sanitize:
        print_findings(findings)
    if findings or not report["passed"]:
        raise typer.Exit(1)


def _print(report: Mapping[str, Any]) -> None:
    from firstlight.cli.tables import print_rows

    print_rows("proof", report["rows"])
    for finding in report["findings"]:
        bucket = "" if finding["bucket"] is None else f", bucket {finding['bucket']}"
        print(f"{finding['phase']}{bucket}: {finding['finding']}")
    cases = sum(row["cases"] for row in report["rows"])
    print(f"{report['failed']} of {len(report['rows'])} failed; {cases} cases")
