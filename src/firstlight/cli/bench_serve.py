"""``firstlight bench serve``: a load for a server, and what the server makes of it."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstlight.cli.options import takes
from firstlight.config import api_key_from
from firstlight.errors import ConfigError

if TYPE_CHECKING:
    from firstlight.bench import Measured

_ADDRESS = "http://127.0.0.1:8000"


def _option(panel: str, name: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, metavar=metavar, show_default=False)


def _load(name: str, text: str, metavar: str | None = None) -> Any:
    return _option("Load", name, text, metavar)


def _content(name: str, text: str, metavar: str | None = None) -> Any:
    return _option("Requests", name, text, metavar)


_Number = Annotated[int | None, _load("--num-requests", "Requests that count, 100.")]
_Warmup = Annotated[int | None, _load("--warmup", "Requests before them, 2.")]
_Concurrency = Annotated[
    int | None,
    _load("--concurrency", "Clients that ask again as soon as they have their answer; 1."),
]
_Rate = Annotated[
    float | None,
    _load("--request-rate", "Requests a second instead, at random times, whatever was answered."),
]
_Most = Annotated[
    int | None, _load("--max-concurrency", "With --request-rate: requests under way at most.")
]
_Timeout = Annotated[
    float | None, _load("--timeout", "Seconds without a sign of the server that are an error, 600.")
]
_Seed = Annotated[
    int | None,
    _load("--seed", "Of texts, pictures, lengths and times; 0. An equal load finds caches full."),
]
_Input = Annotated[
    str | None, _content("--input-tokens", "Of a text, about: 128, or as 100:200.", "N")
]
_Output = Annotated[
    str | None, _content("--output-tokens", "Of an answer, at most: 64, or as 32:128.", "N")
]
_Eos = Annotated[bool, _content("--ignore-eos", "Let every answer have exactly that many tokens.")]
_Temperature = Annotated[float | None, _content("--temperature", "0, the default, is greedy.")]
_Images = Annotated[int | None, _content("--images", "Pictures in each request, 0.")]
_Size = Annotated[str | None, _content("--image-size", "448x448, or several with commas.", "WxH")]
_Distinct = Annotated[
    int | None,
    _content("--distinct-images", "Different pictures in all; by default none comes again."),
]
_Slo = Annotated[
    str | None,
    _option(
        "Result",
        "--slo",
        "Count the answers within, in ms: ttft:200,itl:30; tpot and e2e too.",
        "LIST",
    ),
]


def load_options(
    num_requests: _Number = None,
    warmup: _Warmup = None,
    concurrency: _Concurrency = None,
    request_rate: _Rate = None,
    max_concurrency: _Most = None,
    timeout: _Timeout = None,
    seed: _Seed = None,
    input_tokens: _Input = None,
    output_tokens: _Output = None,
    ignore_eos: _Eos = False,
    temperature: _Temperature = None,
    images: _Images = None,
    image_size: _Size = None,
    distinct_images: _Distinct = None,
    slo: _Slo = None,
) -> dict[str, Any]:
    """The settings of the load that were typed; None means "not typed"."""
    return {
        "num_requests": num_requests,
        "warmup": warmup,
        "concurrency": concurrency,
        "request_rate": request_rate,
        "max_concurrency": max_concurrency,
        "timeout": timeout,
        "seed": seed,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "ignore_eos": ignore_eos or None,
        "temperature": temperature,
        "images": images,
        "image_size": image_size,
        "distinct_images": distinct_images,
        "slo": slo,
    }


_Server = Annotated[str | None, _option("Server", "--server", f"Its address; {_ADDRESS}.", "URL")]
_Start = Annotated[
    str | None,
    _option("Server", "--start", "Start firstlight's own with this model, and end it.", "MODEL"),
]
_StartOptions = Annotated[
    str | None,
    _option("Server", "--start-options", "Of `firstlight serve`, in quotes.", "OPTIONS"),
]
_Model = Annotated[
    str | None, _option("Server", "--model", "Its name there; the first that the server lists.")
]
_KeyEnv = Annotated[
    str | None,
    _option("Server", "--api-key-env", "Variable with the key; FIRSTLIGHT_API_KEY.", "NAME"),
]
_Json = Annotated[
    Path | None, _option("Result", "--json", "Write every number to this file.", "FILE")
]
_Plot = Annotated[
    Path | None, _option("Result", "--plot", "Draw the latencies into this file.", "FILE.svg")
]


@takes(load=load_options)
def bench_serve(
    server: _Server = None,
    start: _Start = None,
    start_options: _StartOptions = None,
    model: _Model = None,
    api_key_env: _KeyEnv = None,
    json_file: _Json = None,
    plot_file: _Plot = None,
    *,
    load: dict[str, Any],
) -> None:
    """Measure a server, any that speaks OpenAI's API, under a load of texts and pictures.

    Ends with code 1 if no request was answered.
    """
    from firstlight.bench import LoadSettings, measure, report

    settings = LoadSettings.from_options(load)
    key = api_key_from(api_key_env)
    # Before minutes of measuring rather than after.
    for name, file in (("--json", json_file), ("--plot", plot_file)):
        if file is not None and not file.expanduser().parent.is_dir():
            raise ConfigError(f"{name} = {str(file)!r}: there is no such folder")
    with _address(server, start, start_options) as url, _progress() as told:
        measured = asyncio.run(measure(settings, url, key=key, model=model, told=told))
    made = report(measured)
    if json_file is not None:
        _write(json_file, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    if plot_file is not None:
        _write(plot_file, _drawn(measured, made))
    from firstlight.cli.bench_serve_tables import print_load

    print_load(made)
    if not made["totals"]["answered"]:
        raise typer.Exit(1)


@contextmanager
def _address(server: str | None, start: str | None, options: str | None) -> Iterator[str]:
    """The address of the server that is there, or of one that is started."""
    if start is None:
        if options is not None:
            raise ConfigError(f"--start-options = {options!r} needs --start")
        yield server or _ADDRESS
        return
    if server is not None:
        raise ConfigError(f"--server = {server!r} and --start = {start!r}: give one of them")
    from firstlight.bench import server_process

    try:
        words = shlex.split(options or "")
    except ValueError as error:
        raise ConfigError(f"--start-options = {options!r}: {error}") from error
    with server_process(start, words) as url:
        yield url


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Tells how far it is where somebody looks."""
    if not sys.stderr.isatty():
        yield None
        return

    def told(what: str, done: int, n: int) -> None:
        print(f"\r\033[K{what} {done}/{n}", end="", file=sys.stderr, flush=True)

    try:
        yield told
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _drawn(measured: Measured, made: dict[str, Any]) -> str:
    from firstlight.bench.charts import draw

    about, rates = made["about"], made["rates"]
    load = f"{about['load']} load, {made['totals']['requests']} requests"
    facts = (about["model"], load, f"{rates['output_tokens_per_s']:g} tokens/s", about["date"])
    return draw(measured, " · ".join(facts))


def _write(file: Path, text: str) -> None:
    try:
        file.expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from error
