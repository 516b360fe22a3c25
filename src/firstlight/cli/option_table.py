"""Every setting as an option: the table from which the command line and its page are made.

The options are the fields of the settings classes. What stands here is only what the fields do not
say: names that differ, shorter words for ``--help``, and what is no option.
"""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from firstlight.config import PICTURE_SETTINGS, EngineConfig
from firstlight.server.settings import ServerSettings


class Kind(Enum):
    """How an option is typed."""

    FLAG = "flag"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    LIST = "list"
    """Texts: repeated, or one text with commas."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting on the command line.

    Attributes:
        field: the settings field that it sets.
        name: its long name, without dashes.
        panel: the heading under which ``--help`` shows it.
        metavar: what stands for its value, or None for the kind's own word.
    """

    field: str
    name: str
    kind: Kind
    text: str
    panel: str
    metavar: str | None = None


_NAMES: Final[Mapping[str, str]] = {
    "prefill_buckets": "buckets",
    "max_prefill_bucket": "max-bucket",
    "api_keys": "api-key",
    "debug": "check-memory",
}
_METAVARS: Final[Mapping[str, str]] = {
    "prefill_buckets": "LIST",
    "decode_buckets": "LIST",
    "media_ports": "LIST",
    "limit_mm_per_prompt": "JSON",
    "mm_processor_kwargs": "JSON",
    "api_key_file": "FILE",
    "chat_template": "FILE",
    "allowed_media_root": "FOLDER",
    "cache_dir": "FOLDER",
}
_TEXTS: Final[Mapping[str, str]] = {
    "dtype": "auto, float32, bfloat16 or float16.",
    "device": "cpu, cuda or cuda:N.",
    "backend": "How graphs are captured: auto, tape, cuda, cuda-whole or eager.",
    "prefill_buckets": "Prefill buckets, e.g. 64,128,256, or a file of them.",
    "decode_buckets": "Decode buckets, e.g. 1,2,4,8, or a file of them.",
    "max_prefill_bucket": "Where the default prefill ladder ends.",
    "padding_cost": "measured, or free: replay whatever fits a bucket.",
    "proof": "What is proven of each graph: off, quick or full.",
    "max_context": "Tokens of prompt and answer together.",
    "chat_template": "File of a Jinja template, instead of the checkpoint's.",
    "debug": "Account for every page whenever no request is left; else the engine fails.",
    "kv_pages": "Pages of the KV pool.",
    "kv_bytes": "Limit of the KV pool where its pages are derived.",
    "kv_prefault": "Make all of the KV pool resident at the start.",
    "gpu_memory": "Share of the GPU's memory that may be in use, 0.9 by default.",
    "sliding_pages": "Pages of the pool of layers with a sliding window.",
    "prefix_cache": "Start a prompt behind what was computed of its beginning before.",
    "encoder_cache_bytes": "Limit of the cache of encoded pictures; 0 keeps none.",
    "dynamic_quantization": "Inputs of layers in fewer bits rounded to 8: auto, on or off.",
    "fuse": "Swap modules of the decoder for equal faster ones.",
    "cache_dir": "Folder for what can be made again.",
    "trust_remote_code": "Run code that a checkpoint brings.",
    "allowed_media_domains": "Hosts that pictures may be fetched from, e.g. "
    "images.example.org,.example.com.",
    "allow_any_media_host": "Fetch pictures from any host with public addresses.",
    "trusted_media_networks": "Networks that pictures may be fetched from although they are not "
    "public, e.g. 10.1.0.0/16.",
    "allowed_media_root": "Folder in which paths and file: addresses of pictures must lie.",
    "max_image_pixels": "Most pixels of a picture, width times height.",
    "artifact_cache_bytes": "Limit of what processors made of pictures and is kept; 0 keeps none.",
    "media_threads": "Pictures decoded and processed at the same time.",
    "trust_media_hashes": "Believe the content_hash of a picture without reading the picture.",
    "limit_mm_per_prompt": "Most pictures and videos of a request, e.g. '{\"image\": 4}'.",
    "mm_processor_kwargs": "What the image processor is to do otherwise, e.g. "
    "'{\"max_pixels\": 262144}'.",
    "host": "Where to listen; 127.0.0.1 is the default.",
    "port": "8000 is the default; 0 takes one that is free.",
    "served_model_name": "Names by which requests call the model; the first stands in answers.",
    "api_key_file": "API keys, one a line. FIRSTLIGHT_API_KEY gives some as well.",
    "api_keys": "API key. Others on this machine see what is typed; a file is safer.",
    "cors_origins": "Origins whose pages may call the server; * for all.",
    "allowed_hosts": "Host names that requests may ask for, beside addresses and localhost.",
    "max_waiting": "Requests that may wait; more are refused with 429.",
    "max_waiting_bytes": "Bytes that all requests in the house may have.",
    "prepared_ahead": "Requests that may be prepared beside those that run.",
    "request_seconds": "What a request may take from arrival to end.",
    "body_seconds": "What one wait for a client may take.",
    "keep_alive_seconds": "How long a connection without a request is kept.",
    "drain_seconds": "What requests get to finish after SIGTERM.",
    "late_graphs": "Capture and prove the longer graphs while nobody asks, not at the start.",
    "tool_call_parser": "auto, hermes, qwen3_coder, llama3_json, mistral, mistral_args or none.",
    "reasoning_parser": "auto, or none: thoughts stay in the answer.",
    "log_format": "text or json.",
}
_NO_OPTIONS: Final = frozenset({"model", "sanitize"})
"""An argument; and an option of the commands that print what it finds."""


def engine_options(less: Collection[str] = ()) -> list[Option]:
    """The engine's settings but those about pictures, in the order of the class."""
    return _options(EngineConfig, "Engine", {*PICTURE_SETTINGS, *_NO_OPTIONS, *less})


def picture_options(less: Collection[str] = ()) -> list[Option]:
    """The settings about pictures."""
    others = {entry.name for entry in fields(EngineConfig)} - PICTURE_SETTINGS
    return _options(EngineConfig, "Pictures", {*others, *less})


def server_options() -> list[Option]:
    """The settings of the server."""
    return _options(ServerSettings, "Server", ())


def _options(owner: type[Any], panel: str, less: Collection[str]) -> list[Option]:
    hints = get_type_hints(owner)
    entries: Sequence[Field[Any]] = fields(owner)
    return [
        Option(
            field=entry.name,
            name=_NAMES.get(entry.name, entry.name.replace("_", "-")),
            kind=_kind(hints[entry.name]),
            text=_TEXTS.get(entry.name) or _first_sentence(entry.metadata["doc"]),
            panel=panel,
            metavar=_METAVARS.get(entry.name),
        )
        for entry in entries
        if entry.name not in less
    ]


def _kind(hint: Any) -> Kind:
    """How values of a field's type are typed; what is no plain value is a text."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple:
        return Kind.LIST if get_args(hint)[0] is str else Kind.TEXT
    return {bool: Kind.FLAG, int: Kind.INT, float: Kind.FLOAT}.get(hint, Kind.TEXT)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<!e\.g\.)(?<=\.)\s+(?=[A-Z`])", text)[0].replace("`", "")
