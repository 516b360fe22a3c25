"""``firstlight bench``: measurements that anybody can repeat on their own machine."""

from __future__ import annotations

import typer

from firstlight.cli.bench_media import media
from firstlight.cli.bench_serve import bench_serve


def build_bench() -> typer.Typer:
    """The group of commands that measure."""
    group = typer.Typer(
        name="bench",
        help="Measure a model, or a server.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    group.callback(invoke_without_command=True)(_bench)
    group.command()(media)
    group.command("serve")(bench_serve)
    return group


def _bench(context: typer.Context) -> None:
    """Measure a model, or a server."""
    if context.invoked_subcommand is None:
        print(context.get_help())
