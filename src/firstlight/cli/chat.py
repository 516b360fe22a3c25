"""``firstlight chat``: a conversation in the terminal, with a model here or with a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from firstlight.cli.configured import Given, configured
from firstlight.cli.conversation import HELP, Conversation
from firstlight.cli.media_options import PictureWish, picture_wish
from firstlight.cli.message import accept_any_bytes, system_messages
from firstlight.cli.options import (
    MODEL,
    ONE_AT_A_TIME,
    PROGRESS,
    SYSTEM,
    sampling_params,
    takes,
)
from firstlight.cli.progress import open_with_bar
from firstlight.cli.session import Session, Talker
from firstlight.core.sampling_params import SamplingParams
from firstlight.errors import ConfigError

if TYPE_CHECKING:  # HTTP is needed with --server only
    from firstlight.cli.remote import RemoteModel

_Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Talk with a server of OpenAI's API, e.g. http://127.0.0.1:8000, instead of loading "
        "a model here. MODEL is then a name that the server knows; its first by default.",
        rich_help_panel="Server",
        show_default=False,
    ),
]
_Key = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Key for the server; FIRSTLIGHT_API_KEY is safer, as others see what is typed.",
        rich_help_panel="Server",
        show_default=False,
    ),
]


@configured(pictures=True, less=ONE_AT_A_TIME)
@takes(wish=picture_wish, params=sampling_params)
def chat(
    context: typer.Context,
    model: MODEL = None,
    system: SYSTEM = None,
    no_progress: PROGRESS = False,
    server: _Server = None,
    api_key: _Key = None,
    *,
    given: Given,
    wish: PictureWish,
    params: SamplingParams,
) -> None:
    """Talk with a model in the terminal, about pictures too."""
    start = system_messages(system)
    session: Session = context.obj
    remote = None
    if server is None:
        config = given.engine(max_num_seqs=1)
        talker: Talker = open_with_bar(session, config, shown=not no_progress, late=True)
        name, fetches = config.model, config.fetches_media
    else:
        talker = remote = _open_remote(server, model, api_key, given)
        name, fetches = f"{remote.name} at {remote.url}", True

    def make(note: Callable[[str], None]) -> Conversation:
        return Conversation(
            talker,
            params,
            write=lambda text: print(text, end="", flush=True),
            note=note,
            wish=wish,
            fetches=fetches,
            start=start,
            debug=session.debug,
        )

    with nullcontext() if remote is None else closing(remote):
        with_console(make, title=name)


def _open_remote(url: str, model: str | None, api_key: str | None, given: Given) -> RemoteModel:
    """The server; settings that were typed for a model here are refused.

    Raises:
        ConfigError: such a setting, or as :class:`RemoteModel`.
    """
    for name in given.origins:
        if name != "model" and given.typed(name):
            typed = given.origins[name].where
            raise ConfigError(f"{typed} is about a model here; --server has loaded its own")
    # A model that file or environment name is the one to load here, not a name that it is served
    # under.
    from firstlight.cli.remote import RemoteModel, one_key

    wanted = model if given.typed("model") else None
    return RemoteModel(url, model=wanted, api_key=one_key(api_key))


def with_console(make: Callable[[Callable[[str], None]], Conversation], *, title: str) -> None:
    """Hold a conversation with whoever types, or with lines from a pipe.

    Args:
        make: the conversation, given what prints a line that is no part of an answer.
        title: what stands above it.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)

    def note(text: str) -> None:
        console.print(text, style="dim", markup=False, soft_wrap=True)

    conversation = make(note)
    accept_any_bytes()
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  -- gives input() line editing and history

        note(f"{title}\n{HELP}")
    _converse(conversation, prompt=">>> " if interactive else "")


def _converse(conversation: Conversation, *, prompt: str) -> None:
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        if line.strip() and not conversation.take(line):
            return
