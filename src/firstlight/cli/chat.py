"""``firstlight chat``: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from firstlight.cli.media_options import PictureWish, media_settings, picture_wish
from firstlight.cli.message import (
    accept_any_bytes,
    check_image,
    split_images,
    system_messages,
    user_message,
)
from firstlight.cli.options import MODEL, PROGRESS, SYSTEM, engine_config, sampling_params, takes
from firstlight.cli.progress import open_with_bar
from firstlight.cli.report import timing_line
from firstlight.cli.sentence import sentence
from firstlight.cli.session import ChatModel, Message, Session
from firstlight.config import BUNDLED_MODEL, EngineConfig
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.text import check_text
from firstlight.errors import FirstlightError

HELP = """\
Type a question. A picture is attached by typing its path, alone or within the question.
/image FILE   attach a picture to the next question
/reset        forget the conversation
/help         show this
/exit         leave (also Ctrl-D); Ctrl-C stops an answer"""


class Conversation:
    """The turns so far, and what a typed line does to them.

    Args:
        model: answers.
        params: sampling of every answer.
        write: gets text as it comes, without line ends of its own.
        note: gets whole lines that are no part of the answer.
        wish: how pictures are to be prepared.
        fetches: whether they may be fetched.
        start: turns that precede all others, also after ``/reset``.
        debug: raise errors that nobody foresaw instead of telling them.
    """

    def __init__(
        self,
        model: ChatModel,
        params: SamplingParams,
        *,
        write: Callable[[str], None],
        note: Callable[[str], None],
        wish: PictureWish | None = None,
        fetches: bool = False,
        start: Sequence[Message] = (),
        debug: bool = False,
    ) -> None:
        self._model = model
        self._params = params
        self._write = write
        self._note = note
        self._debug = debug
        self._wish = wish or PictureWish()
        self._fetches = fetches
        self._start = start
        self.messages: list[Message] = list(start)
        self.images: list[str] = []

    def take(self, line: str) -> bool:
        """Do what ``line`` asks; False when the conversation is over.

        An error of one question is told, and the conversation goes on without it.
        """
        line = line.strip()
        try:
            command, _, rest = line.partition(" ")
            if command in ("/exit", "/quit", "/bye"):
                return False
            if command == "/reset":
                self.messages, self.images = list(self._start), []
                self._note("forgotten")
            elif command == "/help":
                self._note(HELP)
            elif command == "/image":
                self._image(rest.strip().strip("'\""))
            else:
                self._question(line)
        except Exception as error:
            if self._debug and not isinstance(error, FirstlightError):
                raise
            self._note(f"error: {sentence(error)}")
        return True

    def _image(self, path: str) -> None:
        if path:
            self._attach([check_image(path, fetches=self._fetches)])
        else:
            self._note("/image takes the path of a picture")

    def _question(self, line: str) -> None:
        check_text(line, "the question")
        text, images = split_images(line)
        if images:
            self._attach(images)
        elif text.startswith("/") and " " not in text:
            self._note(f"there is no command {text}; /help shows those there are")
            return
        if text:
            self._ask(text)

    def _attach(self, images: list[str]) -> None:
        self.images += images
        self._note(f"attached {', '.join(images)}")

    def _ask(self, text: str) -> None:
        turns = [*self.messages, user_message(text, self.images, self._wish.detail)]
        kwargs = self._wish.kwargs
        answer, completion = "", None
        try:
            for event in self._model.stream_chat(turns, self._params, mm_processor_kwargs=kwargs):
                if isinstance(event, Completion):
                    completion = event
                else:
                    answer += event
                    self._write(event)
        except KeyboardInterrupt:
            pass  # the answer ends here; what was said of it stays in the conversation
        finally:
            if answer:
                self._write("\n")
            self.images = []
        self.messages = [*turns, {"role": "assistant", "content": answer}]
        self._note(timing_line(completion) if completion else "stopped")


@takes(settings=engine_config, media=media_settings, wish=picture_wish, params=sampling_params)
def chat(
    context: typer.Context,
    model: MODEL = BUNDLED_MODEL,
    system: SYSTEM = None,
    no_progress: PROGRESS = False,
    *,
    settings: dict[str, Any],
    media: dict[str, Any],
    wish: PictureWish,
    params: SamplingParams,
) -> None:
    """Talk with a model in the terminal, about pictures too."""
    start = system_messages(system)
    config = EngineConfig.from_options(settings | media | {"model": model, "max_num_seqs": 1})
    session: Session = context.obj
    llm = open_with_bar(session, config, shown=not no_progress)
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    conversation = Conversation(
        llm,
        params,
        write=lambda text: print(text, end="", flush=True),
        note=lambda text: console.print(text, style="dim", markup=False, soft_wrap=True),
        wish=wish,
        fetches=config.fetches_media,
        start=start,
        debug=session.debug,
    )
    accept_any_bytes()
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  -- gives input() line editing and history

        console.print(f"{config.model}\n{HELP}", style="dim", markup=False, soft_wrap=True)
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
