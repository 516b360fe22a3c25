"""Names that users of other servers have in their fingers, and what each means here.

What has an equal meaning sets our setting. What is always so is accepted. Everything else is
refused by a sentence that says what to use instead, so that nothing is ignored in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firstlight.cli.option_table import Kind
from firstlight.errors import ConfigError

_GIB: Final = 1 << 30
ALWAYS: Final = "always so"


@dataclass(frozen=True, slots=True)
class Peer:
    """Names from elsewhere with one meaning.

    Attributes:
        names: as typed, dashes included.
        field: the settings field that they set; empty where they set none.
        read: from their value to the field's; None where it is the same.
        neutral: where there is no field, values that ask for what is so anyway.
        note: what a refusal says, or what the value becomes.
    """

    names: tuple[str, ...]
    kind: Kind
    field: str = ""
    read: Callable[[Any], object] | None = None
    neutral: tuple[str, ...] = ()
    note: str = ""

    def value_of(self, given: Any, name: str) -> object:
        """The value for ``field``; None where it asks for nothing that is not so.

        Args:
            name: the one of its names that was typed.

        Raises:
            ConfigError: it cannot be had, with what to use instead.
        """
        if self.field:
            return given if self.read is None else self.read(given)
        if str(given).lower() in self.neutral:
            return None
        raise ConfigError(f"{name}: {self.note}")


def argument_of(name: str) -> str:
    """A name as a Python argument."""
    dashes = len(name) - len(name.lstrip("-"))
    return f"peer{dashes}_{name.lstrip('-').replace('-', '_')}"


def _same(field: str, kind: Kind, *names: str) -> Peer:
    return Peer(names, kind, field)


def _as(field: str, kind: Kind, note: str, read: Callable[[Any], object], *names: str) -> Peer:
    return Peer(names, kind, field, read, note=note)


def _always(*names: str) -> Peer:
    """Flags for what is always on, or needs no flag."""
    return Peer(names, Kind.FLAG, neutral=("true", "false"), note=ALWAYS)


def _no(note: str, *names: str, kind: Kind = Kind.TEXT, neutral: Sequence[str] = ()) -> Peer:
    off = ("false",) if kind is Kind.FLAG else ()
    return Peer(names, kind, neutral=(*neutral, *off), note=note)


def _gibibytes(value: float) -> int:
    return int(value * _GIB)


def _origins(value: str) -> list[str]:
    """``'["https://a"]'`` as well as ``'https://a,https://b'``."""
    try:
        found = json.loads(value)
    except ValueError:
        found = value.split(",")
    return [str(part) for part in found] if isinstance(found, list) else [value]


_MEMORY = (
    "--gpu-memory is the share of a GPU's memory that may be in use; --kv-bytes limits the KV "
    "pool, --kv-pages sets its pages, --encoder-cache-bytes and --artifact-cache-bytes limit what "
    "is kept of pictures"
)
_ONE_PROCESS = "the model runs in one process on one device; only 1 is accepted"
_GRAPHS = (
    "graphs are set by --buckets and --decode-buckets (sizes), --backend (how), and --eager (none)"
)
_KV = "keys and values have the type that --dtype names; only weights have --quantization"
_PICTURES = "ask the image processor: --mm-processor-kwargs '{\"max_pixels\": N}', or --detail"
_PROXY = "TLS and paths are the work of a proxy before the server; it listens on --host and --port"

PEERS: Final[tuple[Peer, ...]] = (
    _same("model", Kind.TEXT, "--model", "--model-path", "-m", "--hf-repo", "-hf", "-hfr"),
    _same("max_context", Kind.INT, "--max-model-len", "--context-length", "--ctx-size", "-c"),
    _same("served_model_name", Kind.LIST, "--alias", "-a"),
    _same("quantization", Kind.TEXT, "-q"),
    _same("eager", Kind.FLAG, "--enforce-eager", "--disable-cuda-graph", "--eager-mode"),
    _same("max_num_seqs", Kind.INT, "--max-running-requests", "--parallel", "-np"),
    _same(
        "max_batch_tokens",
        Kind.INT,
        "--max-num-batched-tokens",
        "--chunked-prefill-size",
        "--cb-max-batch-tokens",
        "--prefill-step-size",
    ),
    _same("page_size", Kind.INT, "--block-size", "--cb-block-size"),
    _same("kv_pages", Kind.INT, "--num-gpu-blocks-override", "--cb-num-blocks"),
    _same("kv_bytes", Kind.INT, "--kv-cache-memory-bytes"),
    _same("gpu_memory", Kind.FLOAT, "--gpu-memory-utilization"),
    _same("prefix_cache", Kind.FLAG, "--enable-prefix-caching", "--cache-prompt"),
    _as(
        "prefix_cache",
        Kind.FLAG,
        "the opposite",
        lambda off: not off,
        "--no-enable-prefix-caching",
        "--disable-radix-cache",
        "--no-cache-prompt",
    ),
    _as(
        "overlap_schedule",
        Kind.FLAG,
        "`on`",
        lambda on: "on" if on else "off",
        "--async-scheduling",
    ),
    _as(
        "overlap_schedule",
        Kind.FLAG,
        "`off`",
        lambda off: "off" if off else "on",
        "--no-async-scheduling",
        "--disable-overlap-schedule",
    ),
    _same("decode_buckets", Kind.TEXT, "--cuda-graph-bs", "--cudagraph-capture-batch-sizes"),
    _same("seed", Kind.INT, "--default-seed", "--random-seed"),
    _same("allowed_media_root", Kind.TEXT, "--allowed-local-media-path", "--media-path"),
    _same("allowed_media_domains", Kind.LIST, "--allowed-media-domain"),
    _as(
        "artifact_cache_bytes",
        Kind.FLOAT,
        "in GiB",
        _gibibytes,
        "--mm-processor-cache-gb",
    ),
    _same("cors_origins", Kind.LIST, "--cors-origin"),
    _as("cors_origins", Kind.TEXT, "a JSON list", _origins, "--allowed-origins"),
    _always("--enable-chunked-prefill", "--continuous-batching", "--cont-batching"),
    _always("--enable-metrics", "--metrics", "--jinja", "--enable-cache-report"),
    _always("--enable-auto-tool-choice", "--disable-log-requests", "--no-enable-log-requests"),
    _no(
        "prompts longer than a step are always prefilled in chunks; --max-batch-tokens sets its "
        "size",
        "--no-enable-chunked-prefill",
        kind=Kind.FLAG,
    ),
    _no(
        _MEMORY,
        "--mem-fraction-static",
        "--cache-max-entry-count",
        "--cb-max-memory-percent",
        "--max-total-tokens",
    ),
    _no(
        _ONE_PROCESS,
        "--tensor-parallel-size",
        "--tp-size",
        "--tp",
        "-tp",
        "--pipeline-parallel-size",
        "-pp",
        "--data-parallel-size",
        "-dp",
        neutral=("1",),
    ),
    _no(
        "the model runs where --device says, whole",
        "--n-gpu-layers",
        "--gpu-layers",
        "-ngl",
        "--cpu-offload-gb",
        "--swap-space",
        neutral=("0", "0.0"),
    ),
    _no(
        _GRAPHS,
        "--compilation-config",
        "-O",
        "--cuda-graph-config",
        "--cudagraph-capture-sizes",
        "--cuda-graph-max-bs",
        "--cuda-graph-max-bs-decode",
        "--cuda-graph-backend-prefill",
        "--cuda-graph-backend-decode",
    ),
    _no(
        "decoders are captured as graphs by default; --backend says how, --eager turns it off",
        "--compile",
        "--cb-use-cuda-graph",
        kind=Kind.FLAG,
    ),
    _no(_KV, "--kv-cache-dtype", "--kv-bits", neutral=("auto",)),
    _no(
        "attention is firstlight's own; there is nothing to choose",
        "--attention-backend",
        "--attn-implementation",
        "--flash-attn",
        "-fa",
        neutral=("auto",),
    ),
    _no(
        "the pool of layers with a window is set by --sliding-pages",
        "--swa-full",
        kind=Kind.FLAG,
    ),
    _no(
        "a GGUF file is served as a text model; give a folder in Hugging Face layout for pictures",
        "--mmproj",
        "-mm",
    ),
    _no(
        "pictures are refused by --limit-mm-per-prompt '{\"image\": 0}'",
        "--no-mmproj",
        kind=Kind.FLAG,
    ),
    _no(
        _PICTURES,
        "--image-min-tokens",
        "--image-max-tokens",
        "--min-pixels",
        "--max-pixels",
    ),
    _no(
        "the cache of encoded pictures is limited in bytes: --encoder-cache-bytes",
        "--vision-cache-size",
    ),
    _no(
        "what processors made is kept once, in this process, up to --artifact-cache-bytes",
        "--mm-processor-cache-type",
        neutral=("lru",),
    ),
    _no("pictures are processed on the CPU", "--mm-processor-device", neutral=("cpu",)),
    _no("pictures are known by SHA-256", "--mm-hasher-algorithm", neutral=("sha256",)),
    _no(
        "the tokenizer is the checkpoint's own; put the wanted one into its folder",
        "--tokenizer",
    ),
    _no(
        "a hub name is loaded at its newest revision; to pin one, download it and give its folder",
        "--revision",
        "--hf-file",
        "-hff",
    ),
    _no(_PROXY, "--ssl-certfile", "--ssl-keyfile", "--root-path"),
    _no(
        "the log has one level; --log-format is text or json", "--log-level", "--uvicorn-log-level"
    ),
)
"""All of them; a field that a command does not take is left out there."""
