"""``firstlight serve``: an OpenAI-compatible server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from firstlight.cli.configured import Given, configured
from firstlight.cli.options import MODEL, PROGRESS
from firstlight.cli.progress import capture_bar
from firstlight.cli.session import Session

_Supervise = Annotated[
    bool,
    typer.Option(
        "--supervise",
        help="Keep a small process above the server, which starts it anew when it dies.",
        rich_help_panel="Server",
    ),
]
_Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Also print the settings as by default, memory by kind, and each graph.",
        rich_help_panel="Server",
    ),
]
_SocketFd = Annotated[int | None, typer.Option("--socket-fd", hidden=True)]


@configured(server=True, pictures=True)
def serve(
    context: typer.Context,
    model: MODEL = None,
    no_progress: PROGRESS = False,
    supervise: _Supervise = False,
    verbose: _Verbose = False,
    socket_fd: _SocketFd = None,
    *,
    given: Given,
) -> None:
    """Serve MODEL over HTTP, with the endpoints of OpenAI's API.

    By default only programs of this machine can connect, on port 8000. SIGTERM and Ctrl-C let
    requests in flight finish.
    """
    from firstlight.server.address import inherited
    from firstlight.server.supervisor import Supervisor

    config = given.engine()
    settings = given.server()
    # The supervised process reads the same file and environment, and is not to supervise again.
    if supervise and socket_fd is None:
        raise typer.Exit(Supervisor(_unsupervised).run(settings))
    sock = None if socket_fd is None else inherited(socket_fd)
    session: Session = context.obj
    with session.opening(config), capture_bar(not no_progress) as progress:
        # FastAPI, torch and transformers take seconds that --help and wrong usage should not.
        from firstlight.server.serve import serve as run

        ready = run(
            config,
            settings,
            progress=progress,
            sock=sock,
            origins=given.where(),
            verbose=verbose,
        )
    ready()


def _unsupervised(fd: int) -> list[str]:
    """This process's own command, less ``--supervise``, to listen on the socket ``fd``."""
    options = [argument for argument in sys.argv[1:] if argument != "--supervise"]
    return [sys.executable, "-m", "firstlight", *options, "--socket-fd", str(fd)]
