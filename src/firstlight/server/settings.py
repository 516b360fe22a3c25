"""The settings of the server; those of the engine are ``EngineConfig``'s."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from firstlight.errors import ConfigError
from firstlight.settings import (
    about,
    check_fields,
    is_above_zero,
    is_bool,
    is_int,
    is_one_of,
    is_text,
    is_tuple_of,
    or_none,
    parse_list,
    parse_path,
    refuse_pair,
    setting,
)

_HOST = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)
_SECONDS = "a number of seconds above 0"


def _is_host(value: object) -> bool:
    """Whether it is a name without scheme, port or path, ``.name`` for all below it, or ``*``."""
    return isinstance(value, str) and bool(_HOST.fullmatch(value))


def is_bare_url(value: object) -> bool:
    """Whether a value is an http address that holds no secret: it is printed at the start."""
    if not isinstance(value, str):
        return False
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError:
        return False
    bare = "@" not in url.netloc and not url.query and not url.fragment
    return url.scheme in ("http", "https") and bool(url.hostname) and bare


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that is fixed when a server starts, beside its engine.

    Raises:
        ConfigError: naming the field, its value and what is accepted, or both fields of a pair
            that cannot go together.
    """

    host: str = setting(
        "127.0.0.1",
        "an address or a host name",
        "Where to listen. By default only programs of this machine can connect.",
        is_text,
    )
    port: int = setting(
        8000, "an int from 0 to 65535", "Port; 0 takes one that is free.", is_int(0, 65535)
    )
    served_model_name: tuple[str, ...] = setting(
        (),
        "names, as a list or as text like 'a,b'",
        "Names by which requests may call the model; the first stands in answers. Empty: the "
        "model's own name.",
        is_tuple_of(is_text),
        parse_list,
    )
    api_key_file: Path | None = field(
        default=None,
        metadata=about(
            "a path, or None",
            "File of API keys, one a line; `#` begins a comment. Keys in `FIRSTLIGHT_API_KEY` "
            "count as well. Without any key everybody who can connect is served.",
            or_none(lambda v: isinstance(v, Path)),
            parse_path,
        ),
    )
    api_keys: tuple[str, ...] = field(
        default=(),
        repr=False,
        metadata=about(
            "keys, as a list or as text like 'a,b'",
            "API keys beside those of the file and of `FIRSTLIGHT_API_KEY`. Users of this machine "
            "can see what is typed on a command line; they cannot see the other two.",
            is_tuple_of(is_text),
            parse_list,
            secret=True,
        ),
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "origins, as a list or as text like 'https://a.example'",
        "Origins whose pages may call the server from a browser; `*` for all. Empty: none.",
        is_tuple_of(is_text),
        parse_list,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "host names, as a list or as text like 'a.example,.example.org'",
        "Names that requests may ask for in their Host header, beside addresses and localhost; "
        "`.example.org` stands for all below it, `*` for all. Empty: all, but on loopback without "
        "a key none, since a page elsewhere could give its own name this machine's address.",
        is_tuple_of(_is_host),
        parse_list,
    )
    max_body_bytes: int = setting(
        64 << 20, "an int from 1024", "Most bytes of a request's body.", is_int(1024)
    )
    max_waiting: int = setting(
        256,
        "an int from 0",
        "Requests that may wait beside those that run (`max_num_seqs`); more are refused with 429.",
        is_int(0),
    )
    max_waiting_bytes: int = setting(
        512 << 20,
        "an int from 1024",
        "Bytes that the bodies of all requests in the house may have; more are refused with 429.",
        is_int(1024),
    )
    admission_threads: int = setting(
        2,
        "an int from 1 to 64",
        "Requests whose prompts and pictures are prepared at the same time.",
        is_int(1, 64),
    )
    prepared_ahead: int = setting(
        4,
        "an int from 1",
        "Requests that may be prepared beside those that run. Whatever waits longer is held as it "
        "came, so that decoded pictures are bounded by this.",
        is_int(1),
    )
    request_seconds: float = setting(
        600.0,
        _SECONDS,
        "What a request may take from its arrival to its end; so much may its body alone.",
        is_above_zero,
    )
    body_seconds: float = setting(
        30.0,
        _SECONDS,
        "What one wait for a client may take: for the head of a request that has begun, for more "
        "of its body, or until it takes more of its answer.",
        is_above_zero,
    )
    keep_alive_seconds: int = setting(
        75,
        "an int from 1",
        "How long a connection without a request is kept. Shorter than a client keeps it, it may "
        "end just when the next request is sent: clients' libraries keep one for 5 to 60 s.",
        is_int(1),
    )
    stall_seconds: float = setting(
        60.0,
        _SECONDS,
        "After so long in one step `/health` says that the engine is stalled.",
        is_above_zero,
    )
    drain_seconds: float = setting(
        30.0,
        _SECONDS,
        "What requests in flight get to finish after SIGTERM or Ctrl-C.",
        is_above_zero,
    )
    late_graphs: bool = setting(
        True,
        "a bool",
        "Serve as soon as the decode graphs and the shortest prefill graphs are proven; capture "
        "and prove the others one by one while nobody asks. Until then their batches run eager, "
        "with the reason. On a CPU, and not with `proof` `full`.",
        is_bool,
    )
    tool_call_parser: str = setting(
        "auto",
        "'auto', 'hermes', 'qwen3_coder', 'llama3_json', 'mistral', 'mistral_args' or 'none'",
        "How the model writes calls of tools; by default as its chat template says.",
        is_one_of(
            "auto", "hermes", "qwen3_coder", "llama3_json", "mistral", "mistral_args", "none"
        ),
    )
    reasoning_parser: str = setting(
        "auto",
        "'auto' or 'none'",
        "Whether thoughts between `<think>` and `</think>`, or `[THINK]` and `[/THINK]`, are told "
        "from the answer, for a model whose chat template knows them.",
        is_one_of("auto", "none"),
    )
    log_format: str = setting(
        "text", "'text' or 'json'", "Form of the log's lines.", is_one_of("text", "json")
    )
    otel: bool = setting(
        False,
        "a bool",
        "Send spans of requests by OpenTelemetry, as its variables `OTEL_*` of the environment "
        "say. Needs `firstlight[otel]`.",
        is_bool,
    )
    otlp_traces_endpoint: str | None = setting(
        None,
        "None, or an http or https address without user, password, query and fragment",
        "Send spans to this collector, by OTLP over HTTP, as to `http://127.0.0.1:4318/v1/traces`. "
        "It is printed at the start: keys for it belong into `OTEL_EXPORTER_OTLP_HEADERS`.",
        or_none(is_bare_url),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_body_bytes > self.max_waiting_bytes:
            why = "no request of that size could ever be taken"
            refuse_pair(
                "max_body_bytes",
                self.max_body_bytes,
                "max_waiting_bytes",
                self.max_waiting_bytes,
                why,
            )

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> ServerSettings:
        """Settings from options as a command line gives them; None means "not given".

        Raises:
            ConfigError: an unknown name, or a value or pair that is refused.
        """
        known = [entry.name for entry in fields(cls)]
        given = {name: value for name, value in options.items() if value is not None}
        for name in given.keys() - known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
            raise ConfigError(f"there is no server setting {name!r}{hint}")
        return cls(**given)  # type: ignore[arg-type]

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine can connect."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")
