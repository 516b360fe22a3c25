"""The figures of ``firstlight bench serve`` as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstlight.cli.tables import print_facts, print_rows

_SETTINGS = ("concurrency", "request_rate", "max_concurrency", "input_tokens", "output_tokens",
             "ignore_eos", "images", "image_size", "seed")  # fmt: skip
_NAMES = {
    "ttft": "time to first token",
    "itl": "between two pieces (ITL)",
    "tpot": "per further token (TPOT)",
    "e2e": "to the end (E2E)",
}


def print_load(made: Mapping[str, Any]) -> None:
    """Print the report of a load to standard output."""
    settings = {name: made["settings"].get(name) for name in _SETTINGS}
    shown = {name: value for name, value in settings.items() if value not in (None, False, 0)}
    print_facts("Load", made["about"] | shown)
    print_facts("Answers", made["totals"] | made["rates"] | _client(made["client"]))
    if "pictures" in made:
        print_facts("Pictures", made["pictures"])
    rows = [{"": _NAMES[name]} | (found or {}) for name, found in made["latency_ms"].items()]
    print_rows("Latencies in ms, from when a request was due", rows)
    if made["goodput"]:
        print_facts("Answers within the limits", made["goodput"])
    if made.get("stages_ms"):
        rows = [{"": name} | found for name, found in made["stages_ms"].items()]
        print_rows("Stages in the server in ms", rows)
    if made.get("graphs"):
        print_rows("Graphs during the load", [_in_percent(row) for row in made["graphs"]])
    if made["errors"]:
        print_rows("Errors", made["errors"])


def _in_percent(row: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of batches and rows as people read them; the JSON has them as numbers up to 1."""
    shares = {name: row[name] for name in ("from_graphs", "padding") if row[name] is not None}
    return dict(row) | {name: f"{share:.1%}" for name, share in shares.items()}


def _client(client: Mapping[str, Any]) -> dict[str, Any]:
    """How far the generator itself kept up."""
    late = client["late_ms"] or {}
    return {"sent_late_ms_p99": late.get("p99"), "share_of_a_core_for_the_client": client["busy"]}
