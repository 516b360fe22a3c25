"""``firstlight run``: one question, one answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from firstlight.cli.findings import findings_as_json, print_findings
from firstlight.cli.media_options import PictureWish, media_settings, picture_wish
from firstlight.cli.message import accept_any_bytes, check_image, system_messages, user_message
from firstlight.cli.options import (
    PROGRESS,
    SANITIZE,
    SYSTEM,
    engine_config,
    sampling_params,
    takes,
)
from firstlight.cli.progress import open_with_bar
from firstlight.cli.report import as_json, timing_line
from firstlight.cli.session import Session
from firstlight.config import BUNDLED_MODEL, EngineConfig
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.text import check_text
from firstlight.errors import RequestError

_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="The model.", show_default=False)
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
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@takes(settings=engine_config, media=media_settings, wish=picture_wish, params=sampling_params)
def run(
    context: typer.Context,
    first: _Model = None,
    second: _Prompt = None,
    image: _Images = None,
    system: SYSTEM = None,
    as_json_: _Json = False,
    no_progress: PROGRESS = False,
    sanitize: SANITIZE = False,
    *,
    settings: dict[str, Any],
    media: dict[str, Any],
    wish: PictureWish,
    params: SamplingParams,
) -> None:
    """Answer PROMPT, about pictures if any are given.

    The answer goes to standard output as it is generated, the timing line to standard error. With
    --sanitize the findings follow there, and the exit code is 1 if there are any.
    """
    model, prompt = split_arguments(first, second)
    # One request at a time: nothing is spent on graphs and pages for more.
    settings |= {**media, "model": model, "max_num_seqs": 1, "sanitize": sanitize}
    config = EngineConfig.from_options(settings)
    images = [check_image(name, fetches=config.fetches_media) for name in image or ()]
    turns = [*system_messages(system), user_message(prompt, images, wish.detail)]
    session: Session = context.obj
    llm = open_with_bar(session, config, shown=not no_progress)
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
    if as_json_:
        answer = {"model": config.model} | as_json(completion, llm)
        if sanitize:
            answer["findings"] = findings_as_json(llm.findings)
        print(json.dumps(answer, ensure_ascii=False))
    else:
        print(flush=True)
        print(timing_line(completion), file=sys.stderr)
    if sanitize:
        print_findings(llm.findings)
        if llm.findings:
            raise typer.Exit(1)


def split_arguments(first: str | None, second: str | None) -> tuple[str, str]:
    """``(model, prompt)``: with two arguments the first is the model, with one it is the prompt.

    Raises:
        RequestError: there is no prompt, it is no text, or the only argument is a model.
    """
    if first is None:
        raise RequestError("run takes [MODEL] PROMPT; the prompt is missing")
    if second is None and is_model(first):
        raise RequestError(
            f"{first!r} is taken for the model; the prompt is missing behind it. If it is the "
            "prompt, put the model before it"
        )
    model, prompt = (BUNDLED_MODEL, first) if second is None else (first, second)
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
