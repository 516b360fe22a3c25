"""``firstlight run``: one question, one answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from firstlight.cli.configured import Given, configured
from firstlight.cli.findings import findings_as_json, print_findings
from firstlight.cli.media_options import PictureWish, picture_wish
from firstlight.cli.message import (
    accept_any_bytes,
    check_image,
    check_video,
    system_messages,
    user_message,
)
from firstlight.cli.options import (
    ONE_AT_A_TIME,
    PROGRESS,
    SANITIZE,
    SYSTEM,
    sampling_params,
    takes,
)
from firstlight.cli.progress import open_with_bar
from firstlight.cli.report import as_json, timing_line
from firstlight.cli.session import Session
from firstlight.config import BUNDLED_MODEL
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.text import check_text
from firstlight.errors import RequestError

_Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="The model: a folder, a .gguf file or a hub name; the bundled one by default.",
        show_default=False,
    ),
]
_Prompt = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPT",
        help="The question. With one argument alone, that is the prompt. "
        "The prompt - is read from standard input.",
        show_default=False,
    ),
]
_Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        "-i",
        metavar="FILE",
        help="A picture, or the address of one; may be repeated.",
        show_default=False,
    ),
]
_Videos = Annotated[
    list[str] | None,
    typer.Option(
        "--video",
        metavar="FILE",
        help="A video, or the address of one; may be repeated.",
        show_default=False,
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@configured(pictures=True, less=ONE_AT_A_TIME)
@takes(wish=picture_wish, params=sampling_params)
def run(
    context: typer.Context,
    first: _Model = None,
    second: _Prompt = None,
    image: _Images = None,
    video: _Videos = None,
    system: SYSTEM = None,
    as_json_: _Json = False,
    no_progress: PROGRESS = False,
    sanitize: SANITIZE = False,
    *,
    given: Given,
    wish: PictureWish,
    params: SamplingParams,
) -> None:
    """Answer PROMPT, about pictures if any are given.

    The answer goes to standard output as it is generated, the timing line to standard error. With
    --sanitize the findings follow there, and the exit code is 1 if there are any.
    """
    if second is not None and given.typed("model"):
        raise RequestError("the model is given twice, by MODEL and by --model")
    model, prompt = split_arguments(first, second, given.model)
    config = given.engine(model=model, max_num_seqs=1, sanitize=sanitize)
    images = [check_image(name, fetches=config.fetches_media) for name in image or ()]
    videos = [check_video(name, fetches=config.fetches_media) for name in video or ()]
    turns = [*system_messages(system), user_message(prompt, images, wish.detail, videos)]
    session: Session = context.obj
    llm = open_with_bar(session, config, shown=not no_progress, late=True)
    try:
        for event in llm.stream_chat(turns, params, mm_processor_kwargs=wish.kwargs):
            if isinstance(event, Completion):
                completion = event
            elif not as_json_:
                print(event, end="", flush=True)
    except Exception:
        if sanitize:  # the findings are likely to say why it failed
            print_findings(llm.findings)
        raise
    if not as_json_:
        print(flush=True)
        print(timing_line(completion), file=sys.stderr)
    else:
        findings = {"findings": findings_as_json(llm.findings)} if sanitize else {}
        answer = {"model": config.model} | as_json(completion, llm) | findings
        print(json.dumps(answer, ensure_ascii=False))
    if sanitize:
        print_findings(llm.findings)
        if llm.findings:
            raise typer.Exit(1)


def split_arguments(
    first: str | None, second: str | None, model: str | None = None
) -> tuple[str, str]:
    """``(model, prompt)``: with two arguments the first is the model, with one it is the prompt.

    Args:
        model: the model that an option, a variable or a file names.

    Raises:
        RequestError: there is no prompt, it is no text, or the only argument is a model.
    """
    if first is None:
        raise RequestError("run takes [MODEL] PROMPT; the prompt is missing")
    if second is None and model is None and is_model(first):
        raise RequestError(
            f"{first!r} is taken for the model; the prompt is missing behind it. If it is the "
            "prompt, put the model before it"
        )
    if second is None:
        model, prompt = model or BUNDLED_MODEL, first
    else:
        model, prompt = first, second
    if prompt == "-":
        accept_any_bytes()
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise RequestError("the prompt is empty")
    return model, check_text(prompt, "the prompt")


def is_model(text: str) -> bool:
    """Whether ``text`` is the bundled model's name, an existing folder or a GGUF file."""
    if text == BUNDLED_MODEL:
        return True
    if not text.strip():  # as a path that is the current folder
        return False
    path = Path(text)
    try:
        return path.is_dir() or (path.suffix.lower() == ".gguf" and path.is_file())
    except (OSError, ValueError):  # a prompt may be longer than a file name can be, or hold a NUL
        return False
