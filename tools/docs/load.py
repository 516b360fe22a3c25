"""What the load test found, from the file that ``scripts/load --json`` wrote."""

from __future__ import annotations

import json
from pathlib import Path

from tools.docs.markdown import table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "load.json"


def load_figures() -> str:
    """Figures and claims as tables, under the machine, commit and date they were taken on."""
    if not RESULTS.is_file():
        return (
            "Not run yet. `scripts/load --kill --json benchmarks/load.json` runs it, and "
            "`scripts/docs` then fills this in."
        )
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    about, given = results["machine"], results["given"]
    where = (
        f"{given['clients']} clients, {given['minutes']:g} minutes, {given['distinct']} distinct "
        f"requests. {about['cpu']}, {about['threads']} threads, {about['capability']}; torch "
        f"{about['torch']}; commit {about['commit']}, {about['date']}."
    )
    figures = table(
        ("measured", ""), [(name, str(value)) for name, value in results["figures"].items()]
    )
    rows = [
        (check["name"], check["found"], check["accepted"], "yes" if check["holds"] else "**no**")
        for check in results["checks"]
    ]
    claims = table(("claimed", "found", "accepted", "holds"), rows)
    return f"{where}\n\n{figures}\n\n{claims}"
