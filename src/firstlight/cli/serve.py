"""``firstlight serve``: an OpenAI-compatible server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from firstlight.cli.options import MODEL, PROGRESS, engine_config, takes
from firstlight.cli.progress import capture_bar
from firstlight.config import BUNDLED_MODEL, EngineConfig


def _server(name: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(
        name, help=text, rich_help_panel="Server", show_default=False, metavar=metavar
    )


def _many(name: str, text: str) -> Any:
    return typer.Option(
        name, help=f"{text} May be repeated.", rich_help_panel="Serving", show_default=False
    )


_Host = Annotated[str | None, _server("--host", "Where to listen; 127.0.0.1 is the default.")]
_Port = Annotated[int | None, _server("--port", "8000 is the default; 0 takes one that is free.")]
_Names = Annotated[
    list[str] | None,
    typer.Option(
        "--served-model-name",
        help="Name by which requests call the model. May be repeated.",
        rich_help_panel="Server",
        show_default=False,
    ),
]
_KeyFile = Annotated[
    Path | None,
    _server("--api-key-file", "API keys, one a line. FIRSTLIGHT_API_KEY gives some as well."),
]
_Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        help="Origin whose pages may call the server; * for all. May be repeated.",
        rich_help_panel="Server",
        show_default=False,
    ),
]
_Body = Annotated[int | None, _server("--max-body-bytes", "Most bytes of a request's body.")]
_Waiting = Annotated[
    int | None, _server("--max-waiting", "Requests that may wait; more are refused with 429.")
]
_WaitingBytes = Annotated[
    int | None, _server("--max-waiting-bytes", "Bytes that all requests in the house may have.")
]
_Seconds = Annotated[
    float | None, _server("--request-seconds", "What a request may take from arrival to end.")
]
_Drain = Annotated[
    float | None, _server("--drain-seconds", "What requests get to finish after SIGTERM.")
]
_Tools = Annotated[
    str | None,
    _server("--tool-call-parser", "auto, hermes, llama3_json, mistral, mistral_args or none."),
]
_Reasoning = Annotated[
    str | None, _server("--reasoning-parser", "auto, or none: thoughts stay in the answer.")
]
_LogFormat = Annotated[str | None, _server("--log-format", "text or json.")]


def server_settings(
    host: _Host = None,
    port: _Port = None,
    served_model_name: _Names = None,
    api_key_file: _KeyFile = None,
    cors_origin: _Origins = None,
    max_body_bytes: _Body = None,
    max_waiting: _Waiting = None,
    max_waiting_bytes: _WaitingBytes = None,
    request_seconds: _Seconds = None,
    drain_seconds: _Drain = None,
    tool_call_parser: _Tools = None,
    reasoning_parser: _Reasoning = None,
    log_format: _LogFormat = None,
) -> dict[str, object]:
    """The settings of the server that were typed; None means "not typed"."""
    return {
        "host": host,
        "port": port,
        "served_model_name": served_model_name,
        "api_key_file": api_key_file,
        "cors_origins": cors_origin,
        "max_body_bytes": max_body_bytes,
        "max_waiting": max_waiting,
        "max_waiting_bytes": max_waiting_bytes,
        "request_seconds": request_seconds,
        "drain_seconds": drain_seconds,
        "tool_call_parser": tool_call_parser,
        "reasoning_parser": reasoning_parser,
        "log_format": log_format,
    }


def _serving(name: str, text: str) -> Any:
    return typer.Option(name, help=text, rich_help_panel="Serving", show_default=False)


_Seqs = Annotated[int | None, _serving("--max-num-seqs", "Requests that run at the same time.")]
_Domains = Annotated[
    list[str] | None,
    _many("--allowed-media-domain", "Host that pictures may be fetched from."),
]
_Root = Annotated[
    Path | None,
    _serving("--allowed-media-root", "Folder in which file: addresses of pictures may lie."),
]
_NoPrefix = Annotated[
    bool, _serving("--no-prefix-cache", "Compute every prompt from its beginning.")
]
_EncoderBytes = Annotated[
    int | None, _serving("--encoder-cache-bytes", "Limit of the cache of encoded pictures.")
]


def serving_config(
    max_num_seqs: _Seqs = None,
    allowed_media_domain: _Domains = None,
    allowed_media_root: _Root = None,
    no_prefix_cache: _NoPrefix = False,
    encoder_cache_bytes: _EncoderBytes = None,
) -> dict[str, object]:
    """The engine's settings that matter to a server alone; None means "not typed"."""
    return {
        "max_num_seqs": max_num_seqs,
        "allowed_media_domains": allowed_media_domain,
        "allowed_media_root": allowed_media_root,
        "prefix_cache": False if no_prefix_cache else None,
        "encoder_cache_bytes": encoder_cache_bytes,
    }


_Supervise = Annotated[
    bool,
    typer.Option(
        "--supervise",
        help="Keep a small process above the server, which starts it anew when it dies.",
        rich_help_panel="Server",
    ),
]
_SocketFd = Annotated[int | None, typer.Option("--socket-fd", hidden=True)]


@takes(server=server_settings, serving=serving_config, settings=engine_config)
def serve(
    model: MODEL = BUNDLED_MODEL,
    no_progress: PROGRESS = False,
    supervise: _Supervise = False,
    socket_fd: _SocketFd = None,
    *,
    server: dict[str, Any],
    serving: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Serve MODEL over HTTP, with the endpoints of OpenAI's API.

    By default only programs of this machine can connect, on port 8000. SIGTERM and Ctrl-C let
    requests in flight finish.
    """
    from firstlight.server.address import inherited
    from firstlight.server.settings import ServerSettings
    from firstlight.server.supervisor import Supervisor

    config = EngineConfig.from_options(settings | serving | {"model": model})
    checked = ServerSettings.from_options(server)
    if supervise:
        raise typer.Exit(Supervisor(_unsupervised).run(checked))
    # FastAPI, torch and transformers take seconds that --help and wrong usage should not.
    from firstlight.server.serve import serve as run

    sock = None if socket_fd is None else inherited(socket_fd)
    with capture_bar(not no_progress) as progress:
        ready = run(config, checked, progress=progress, sock=sock)
    ready()


def _unsupervised(fd: int) -> list[str]:
    """This process's own command, less ``--supervise``, to listen on the socket ``fd``."""
    options = [argument for argument in sys.argv[1:] if argument != "--supervise"]
    return [sys.executable, "-m", "firstlight", *options, "--socket-fd", str(fd)]
