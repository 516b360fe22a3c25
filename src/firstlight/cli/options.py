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


def _engine(name: str, text: str, metavar: str | None = None) -> Any:
    return _option("Engine", name, text=text, metavar=metavar)


def _sampling(*names: str, text: str) -> Any:
    return _option("Sampling", *names, text=text)


MODEL = Annotated[str, typer.Argument(metavar="MODEL", help="The model.", show_default=False)]
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

_Dtype = Annotated[str | None, _engine("--dtype", "auto, float32, bfloat16 or float16.")]
_Device = Annotated[str | None, _engine("--device", "cpu.")]
_Eager = Annotated[bool, _engine("--eager", "Capture nothing; run every step eager.")]
_Backend = Annotated[str | None, _engine("--backend", "How graphs are captured: auto or tape.")]
_Buckets = Annotated[
    str | None, _engine("--buckets", "Prefill buckets, e.g. 64,128,256.", metavar="LIST")
]
_MaxBucket = Annotated[
    int | None, _engine("--max-bucket", "Where the default prefill ladder ends.")
]
_PaddingCost = Annotated[
    str | None, _engine("--padding-cost", "measured, or free: replay whatever fits a bucket.")
]
_Proof = Annotated[
    str | None, _engine("--proof", "What is proven of each graph: off, quick or full.")
]
_MaxContext = Annotated[
    int | None, _engine("--max-context", "Tokens of prompt and answer together.")
]
_PageSize = Annotated[int | None, _engine("--page-size", "Tokens of one KV page.")]
_KVPages = Annotated[int | None, _engine("--kv-pages", "Pages of the KV pool.")]
_Threads = Annotated[int | None, _engine("--threads", "CPU threads of one operation.")]
_NoFuse = Annotated[bool, _engine("--no-fuse", "Keep the model's own modules.")]
_Remote = Annotated[bool, _engine("--trust-remote-code", "Run code that a checkpoint brings.")]


def engine_config(
    dtype: _Dtype = None,
    device: _Device = None,
    eager: _Eager = False,
    backend: _Backend = None,
    buckets: _Buckets = None,
    max_bucket: _MaxBucket = None,
    padding_cost: _PaddingCost = None,
    proof: _Proof = None,
    max_context: _MaxContext = None,
    page_size: _PageSize = None,
    kv_pages: _KVPages = None,
    threads: _Threads = None,
    no_fuse: _NoFuse = False,
    trust_remote_code: _Remote = False,
) -> dict[str, object]:
    """The settings that were typed; None, the default of each, means "not typed"."""
    return {
        "dtype": dtype,
        "device": device,
        "eager": eager or None,
        "backend": backend,
        "prefill_buckets": buckets,
        "max_prefill_bucket": max_bucket,
        "padding_cost": padding_cost,
        "proof": proof,
        "max_context": max_context,
        "page_size": page_size,
        "kv_pages": kv_pages,
        "threads": threads,
        "fuse": False if no_fuse else None,
        "trust_remote_code": trust_remote_code or None,
    }


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


def without(group: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A group of options less those of the arguments ``names``, which keep their defaults."""
    whole = inspect.signature(group, eval_str=True)

    def fewer(**given: Any) -> Any:
        return group(**given)

    kept = [p for p in whole.parameters.values() if p.name not in names]
    fewer.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
    return fewer


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
