"""A conversation: the turns so far, and what a typed line does to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from firstlight.cli.media_options import PictureWish
from firstlight.cli.message import check_image, check_video, split_images, user_message
from firstlight.cli.report import timing_line
from firstlight.cli.sentence import sentence
from firstlight.cli.session import Message, Talker
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.text import check_text
from firstlight.errors import FirstlightError

HELP: Final = """\
Type a question. A picture is attached by typing its path, alone or within the question.
/image FILE   attach a picture to the next question
/video FILE   attach a video
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
        model: Talker,
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
        self.videos: list[str] = []

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
                self.messages, self.images, self.videos = list(self._start), [], []
                self._note("forgotten")
            elif command == "/help":
                self._note(HELP)
            elif command == "/image":
                self._image(rest.strip().strip("'\""))
            elif command == "/video":
                self._video(rest.strip().strip("'\""))
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

    def _video(self, path: str) -> None:
        if path:
            self.videos.append(check_video(path, fetches=self._fetches))
            self._note(f"attached {path}")
        else:
            self._note("/video takes the path of a video")

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
        turn = user_message(text, self.images, self._wish.detail, self.videos)
        turns = [*self.messages, turn]
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
            self.images, self.videos = [], []
        self.messages = [*turns, {"role": "assistant", "content": answer}]
        self._note(timing_line(completion) if completion else "stopped")
