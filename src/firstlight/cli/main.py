"""The command ``firstlight``: its subcommands, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from firstlight import __version__
from firstlight.cli.bench import build_bench
from firstlight.cli.chat import chat
from firstlight.cli.inspect import inspect
from firstlight.cli.layers import says_yes
from firstlight.cli.plan_buckets import plan_buckets
from firstlight.cli.run import run
from firstlight.cli.sentence import sentence
from firstlight.cli.serve import serve
from firstlight.cli.session import OpenModel, Session, open_llm
from firstlight.cli.verify import verify
from firstlight.config import option_variables, wait_briefly


def _print_version(shown: bool) -> None:
    if shown:
        print(f"firstlight {__version__}")
        raise typer.Exit


def _start(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error. May stand anywhere."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Vision-language models, time to first token first."""


def build_app() -> typer.Typer:
    """The command tree."""
    # Tables of rich cut the longer names of options in a terminal 80 columns wide.
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_start)
    for command in (serve, run, chat, inspect, verify, plan_buckets):
        app.command()(command)
    app.add_typer(build_bench())
    return app


def main(argv: Sequence[str] | None = None, *, open_model: OpenModel = open_llm) -> int:
    """Run the command line and return its exit code: 0, 2 after an error, 130 after Ctrl-C.

    Args:
        argv: arguments without the program's name; None is the process's own.
        open_model: how a model is opened; tests give another one.
    """
    wait_briefly()
    command = typer.main.get_command(build_app())
    arguments, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    debug = debug or says_yes(option_variables().get("FIRSTLIGHT_DEBUG"))
    session = Session(open_model, debug, own_process=argv is None)
    try:
        code = command.main(
            arguments or ["--help"], prog_name="firstlight", standalone_mode=False, obj=session
        )
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"firstlight: {sentence(error)}", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Take ``--debug`` out, before or behind the subcommand; what follows ``--`` is left alone."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [a for a in arguments[:end] if a != "--debug"]
    return options + arguments[end:], len(options) < end
