"""The options that several commands share, and how they become values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from firstlight.core.sampling_params import SamplingParams


def _option(panel: str, *names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=text, rich_help_panel=panel, metavar=metavar, show_default=False
    )


def _sampling(*names: str, text: str) -> Any:
    return _option("Sampling", *names, text=text)


MODEL = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="The model: a folder, a .gguf file or a hub name; the bundled one by default.",
        show_default=False,
    ),
]
ONE_AT_A_TIME = ("max_num_seqs", "decode_buckets", "seed", "mm_processor_kwargs")
"""Settings that a command with one request at a time does not take, or takes for its request."""

SYSTEM = Annotated[
    str | None, typer.Option("--system", help="A system message.", show_default=False)
]
PROGRESS = Annotated[
    bool, typer.Option("--no-progress", help="Draw no progress bar while graphs are captured.")
]
SANITIZE = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="Run every batch a second time under poison, and report reads of what nobody wrote, "
        "writes where nobody should, and the like. Ten times slower and more.",
    ),
]

_MaxTokens = Annotated[int, _sampling("--max-tokens", "-n", text="Tokens to generate at most.")]
_Temperature = Annotated[float, _sampling("--temperature", "-t", text="0, the default, is greedy.")]
_TopP = Annotated[float, _sampling("--top-p", text="Keep this probability mass.")]
_TopK = Annotated[int, _sampling("--top-k", text="Keep this many tokens; 0 keeps all.")]
_MinP = Annotated[
    float, _sampling("--min-p", text="Keep tokens this fraction as likely as the best.")
]
_Repetition = Annotated[float, _sampling("--repetition-penalty", text="1 is off.")]
_Seed = Annotated[int | None, _sampling("--seed", text="Make the draws repeatable.")]
_Stop = Annotated[
    list[str] | None, _sampling("--stop", text="Text that ends the answer; may be repeated.")
]


def sampling_params(
    max_tokens: _MaxTokens = 256,
    temperature: _Temperature = 0.0,
    top_p: _TopP = 1.0,
    top_k: _TopK = 0,
    min_p: _MinP = 0.0,
    repetition_penalty: _Repetition = 1.0,
    seed: _Seed = None,
    stop: _Stop = None,
) -> SamplingParams:
    """Sampling as typed; greedy unless a temperature is given."""
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=tuple(stop or ()),
    )


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take each named argument as the options of a group function.

    ``@takes(params=sampling_params)`` replaces the command's argument ``params`` by the options of
    ``sampling_params`` in its signature, and calls the command with that function's result.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        parameters = [p for p in own.parameters.values() if p.name not in groups]
        names: dict[str, list[str]] = {}
        for name, group in groups.items():
            options = inspect.signature(group, eval_str=True).parameters
            names[name] = list(options)
            parameters += options.values()

        @wraps(command)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                given[name] = group(**{option: given.pop(option) for option in names[name]})
            command(**given)

        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in keyword} | {"return": None}
        return run

    return decorate
