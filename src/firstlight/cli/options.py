"""The options that several commands share, and how they become values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from firstlight.core.sampling_params import SamplingParams

_ENGINE = "Engine"
_SAMPLING = "Sampling"


def _option(*names: str, text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=text, rich_help_panel=panel, metavar=metavar, show_default=False
    )


PROGRESS = Annotated[
    bool, typer.Option("--no-progress", help="Draw no progress bar while graphs are captured.")
]


def engine_config(
    dtype: Annotated[
        str | None,
        _option("--dtype", text="auto, float32, bfloat16 or float16.", panel=_ENGINE),
    ] = None,
    device: Annotated[str | None, _option("--device", text="cpu.", panel=_ENGINE)] = None,
    eager: Annotated[
        bool, _option("--eager", text="Capture nothing; run every step eager.", panel=_ENGINE)
    ] = False,
    backend: Annotated[
        str | None,
        _option("--backend", text="How graphs are captured: auto or tape.", panel=_ENGINE),
    ] = None,
    buckets: Annotated[
        str | None,
        _option(
            "--buckets", text="Prefill buckets, e.g. 64,128,256.", panel=_ENGINE, metavar="LIST"
        ),
    ] = None,
    max_bucket: Annotated[
        int | None,
        _option("--max-bucket", text="Where the default prefill ladder ends.", panel=_ENGINE),
    ] = None,
    max_context: Annotated[
        int | None,
        _option("--max-context", text="Tokens of prompt and answer together.", panel=_ENGINE),
    ] = None,
    page_size: Annotated[
        int | None, _option("--page-size", text="Tokens of one KV page.", panel=_ENGINE)
    ] = None,
    kv_pages: Annotated[
        int | None, _option("--kv-pages", text="Pages of the KV pool.", panel=_ENGINE)
    ] = None,
    threads: Annotated[
        int | None, _option("--threads", text="CPU threads of one operation.", panel=_ENGINE)
    ] = None,
    no_fuse: Annotated[
        bool, _option("--no-fuse", text="Keep the model's own modules.", panel=_ENGINE)
    ] = False,
    trust_remote_code: Annotated[
        bool,
        _option("--trust-remote-code", text="Run code that a checkpoint brings.", panel=_ENGINE),
    ] = False,
) -> dict[str, object]:
    """The settings that were typed; None, the default of each, means "not typed"."""
    return {
        "dtype": dtype,
        "device": device,
        "eager": eager or None,
        "backend": backend,
        "prefill_buckets": buckets,
        "max_prefill_bucket": max_bucket,
        "max_context": max_context,
        "page_size": page_size,
        "kv_pages": kv_pages,
        "threads": threads,
        "fuse": False if no_fuse else None,
        "trust_remote_code": trust_remote_code or None,
    }


def sampling_params(
    max_tokens: Annotated[
        int, _option("--max-tokens", "-n", text="Tokens to generate at most.", panel=_SAMPLING)
    ] = 256,
    temperature: Annotated[
        float,
        _option("--temperature", "-t", text="0, the default, is greedy.", panel=_SAMPLING),
    ] = 0.0,
    top_p: Annotated[
        float, _option("--top-p", text="Keep this probability mass.", panel=_SAMPLING)
    ] = 1.0,
    top_k: Annotated[
        int, _option("--top-k", text="Keep this many tokens; 0 keeps all.", panel=_SAMPLING)
    ] = 0,
    min_p: Annotated[
        float,
        _option(
            "--min-p", text="Keep tokens this fraction as likely as the best.", panel=_SAMPLING
        ),
    ] = 0.0,
    repetition_penalty: Annotated[
        float, _option("--repetition-penalty", text="1 is off.", panel=_SAMPLING)
    ] = 1.0,
    seed: Annotated[
        int | None, _option("--seed", text="Make the draws repeatable.", panel=_SAMPLING)
    ] = None,
    stop: Annotated[
        list[str] | None,
        _option("--stop", text="Text that ends the answer; may be repeated.", panel=_SAMPLING),
    ] = None,
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
