"""What the load test found, from the file that ``scripts/load --json`` wrote."""

from __future__ import annotations

from tools.docs.markdown import table
from tools.docs.measured import read, where


def load_run() -> str:
    """The load, as ``scripts/load --json benchmarks/load.json`` found it."""
    return _tables("load.json", "scripts/load")


def load_incidents() -> str:
    """The incidents, as ``scripts/load --minutes 0 --kill`` found them."""
    return _tables("load-kill.json", "scripts/load --minutes 0 --kill")


def _tables(name: str, command: str) -> str:
    """Figures and claims, under the machine, commit and date they were taken on."""
    results = read(name)
    if results is None:
        return (
            f"Not run yet. `{command} --json benchmarks/{name}` runs it, and `scripts/docs` then "
            "fills this in."
        )
    about, given = results["machine"], results["given"]
    minutes = f"{given['minutes']:g} minutes, " if given["minutes"] else ""
    run = f"{given['clients']} clients, {minutes}{given['distinct']} distinct requests. " + where(
        about
    )
    measured = [(key, str(value)) for key, value in results["figures"].items()]
    rows = [
        (check["name"], check["found"], check["accepted"], "yes" if check["holds"] else "**no**")
        for check in results["checks"]
    ]
    parts = [run, table(("measured", ""), measured)] if measured else [run]
    return "\n\n".join([*parts, table(("claimed", "found", "accepted", "holds"), rows)])
