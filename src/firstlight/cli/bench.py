"""``firstlight bench``: measurements that anybody can repeat on their own machine."""

from __future__ import annotations

import typer

from firstlight.cli.bench_media import media


def build_bench() -> typer.Typer:
    """The group of commands that measure."""
    group = typer.Typer(
        name="bench", help="Measure a model on this machine.", pretty_exceptions_enable=False
    )
    group.callback(invoke_without_command=True)(_bench)
    group.command()(media)
    return group


def _bench(context: typer.Context) -> None:
    """Measure a model on this machine."""
    if context.invoked_subcommand is None:
        print(context.get_help())
