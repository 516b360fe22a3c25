"""The engine's configuration: every field checked once, contradictions named, no torch.

This is the only module that reads environment variables: ``FIRSTLIGHT_CACHE``, or else
``XDG_CACHE_HOME`` and ``HOME``, for :attr:`EngineConfig.cache_dir`; ``FIRSTLIGHT_API_KEY`` for the
server; and for the command line every ``FIRSTLIGHT_...``. It sets ``GOMP_SPINCOUNT`` through it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path

from firstlight.bucket_settings import BUCKETS, is_ladder, parse_ladder
from firstlight.errors import ConfigError
from firstlight.media_settings import TOWER_SETTINGS, MediaSettings
from firstlight.settings import (
    about,
    is_above_zero,
    is_bool,
    is_int,
    is_one_of,
    is_power_of_two,
    or_none,
    parse_path,
    refuse_pair,
    setting,
)

BUNDLED_MODEL = "firstlight-demo"
DTYPES = ("auto", "float32", "bfloat16", "float16")
BACKENDS = ("auto", "tape", "cuda", "cuda-whole", "eager")
PROOFS = ("off", "quick", "full")
COSTS = ("measured", "free")
NATIVE = ("auto", "off")
QUANTIZATIONS = ("none", "int8", "int4")
DYNAMIC = ("auto", "on", "off")
_DTYPE_NAMES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32"}
PICTURE_SETTINGS = frozenset(e.name for e in fields(MediaSettings)) - TOWER_SETTINGS
_VARIABLES = "FIRSTLIGHT_"
_GPU_MEMORY = 0.9
PAGE_SIZE = 16
"""Tokens of a page where nothing wants another size."""


def _is_device(value: object) -> bool:
    if not isinstance(value, str):
        return False
    kind, colon, number = value.partition(":")
    return value == "cpu" or (kind == "cuda" and number.isdecimal() == bool(colon))


def cache_dir_from(environ: Mapping[str, str]) -> Path:
    """The cache folder that the environment asks for; it need not exist yet."""
    own = environ.get("FIRSTLIGHT_CACHE")
    if own:
        return Path(own).expanduser()
    base = environ.get("XDG_CACHE_HOME")
    # The XDG specification: a relative path there is invalid and is to be ignored.
    if base and Path(base).is_absolute():
        return Path(base) / "firstlight"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "firstlight"


def api_keys_from(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The keys in ``FIRSTLIGHT_API_KEY``, several with commas between them.

    Args:
        environ: environment to read; None is the process's own.
    """
    environ = os.environ if environ is None else environ
    keys = (key.strip() for key in environ.get("FIRSTLIGHT_API_KEY", "").split(","))
    return tuple(key for key in keys if key)


def option_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The values of all variables ``FIRSTLIGHT_...`` that are not empty, by their whole name.

    Args:
        environ: environment to read; None is the process's own.
    """
    environ = os.environ if environ is None else environ
    return {name: v for name, v in sorted(environ.items()) if name.startswith(_VARIABLES) and v}


def api_key_from(name: str | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """The key to ask a server with; None if there is none.

    Args:
        name: of the variable that has it; None is the first key in ``FIRSTLIGHT_API_KEY``.
        environ: environment to read; None is the process's own.

    Raises:
        ConfigError: a variable was named, and it is not set.
    """
    if name is None:
        return next(iter(api_keys_from(environ)), None)
    key = (os.environ if environ is None else environ).get(name, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {name} holds no API key")
    return key


def wait_briefly(environ: MutableMapping[str, str] | None = None) -> None:
    """Let OpenMP's threads spin for a moment and then sleep, unless the user has said otherwise.

    Only before torch is loaded: its OpenMP reads this once. Spinning on keeps a core from whatever
    else runs, so that a start beside a busy process takes many times as long; sleeping at once
    costs a wake-up for each of a decode step's many short operations.
    """
    environ = os.environ if environ is None else environ
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", "5000")


def _default_cache_dir() -> Path:
    return cache_dir_from(os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(MediaSettings):
    """Everything that is fixed when an engine starts; what is about pictures is inherited.

    Raises:
        ConfigError: naming the field, its value and what is accepted, or both fields of a pair
            that cannot go together.
    """

    model: str = setting(
        BUNDLED_MODEL,
        "a folder in Hugging Face layout, a .gguf file, a hub name, or 'firstlight-demo'",
        "Checkpoint to serve; `firstlight-demo` is the bundled one.",
        lambda v: isinstance(v, str) and bool(v.strip()),
        lambda v: str(v) if isinstance(v, Path) else v,
    )
    dtype: str = setting(
        "auto",
        "'auto', 'float32', 'bfloat16' or 'float16'",
        "Type of weights and activations. `auto` is bfloat16 on a CPU that computes in it, else "
        "float32.",
        is_one_of(*DTYPES),
        lambda v: _DTYPE_NAMES.get(v, v) if isinstance(v, str) else v,
    )
    chat_template: Path | None = field(
        default=None,
        metadata=about(
            "a path, or None for the checkpoint's own",
            "File of a Jinja template that messages become a prompt by, instead of the "
            "checkpoint's.",
            or_none(lambda v: isinstance(v, Path)),
            parse_path,
        ),
    )
    device: str = setting(
        "cpu",
        "'cpu', 'cuda' or 'cuda:N'",
        "Where the model runs: `cuda` is the current NVIDIA GPU, `cuda:1` the second one; "
        "[CUDA](cuda.md) says where that was last run.",
        _is_device,
    )
    eager: bool = setting(False, "True or False", "Capture nothing; run every step eager.", is_bool)
    backend: str = setting(
        "auto",
        "'auto', 'tape', 'cuda', 'cuda-whole' or 'eager'",
        "How a body is captured and replayed. `auto` is `tape` on a CPU and `cuda` on a GPU: CUDA "
        "graphs around eager attention; `cuda-whole` captures attention too.",
        is_one_of(*BACKENDS),
    )
    proof: str = setting(
        "quick",
        "'off', 'quick' or 'full'",
        "How much is proven of each graph before it serves: `quick` replays one rich batch with "
        "garbage in its padding and compares it with eager execution, large buckets by samples; "
        "`full` compares all rows of every case bit for bit, requests run alone, every input "
        "changed alone, and all graphs in shuffled order.",
        is_one_of(*PROOFS),
    )
    sanitize: bool = setting(
        False,
        "True or False",
        "Run every batch a second time under poison and collect what that finds: ten times slower "
        "and more, for debugging.",
        is_bool,
    )
    debug: bool = setting(
        False,
        "True or False",
        "Check whenever the engine becomes idle that every page is accounted for.",
        is_bool,
    )
    fuse: bool = setting(
        True,
        "True or False",
        "Swap modules of the decoder for equal faster ones before capture.",
        is_bool,
    )
    native: str = setting(
        "auto",
        "'auto' or 'off'",
        "Kernels compiled for this CPU: auto compiles them once, where there is a C++ compiler.",
        is_one_of(*NATIVE),
    )
    quantization: str = setting(
        "none",
        "'none', 'int8' or 'int4'",
        "How linear weights of the decoder are stored: blocks of 32 with a scale (int8), or with a "
        "scale and a least value (int4), as GGUF's Q8_0 and Q4_1. Needs the compiled kernels.",
        is_one_of(*QUANTIZATIONS),
    )
    dynamic_quantization: str = setting(
        "auto",
        "'auto', 'on' or 'off'",
        "Whether the inputs of linear layers that are stored in fewer bits are rounded to 8 bits, "
        "each 32 of a row with a scale, and multiplied as whole numbers. `auto` does so where the "
        "CPU sums products of bytes by an instruction (AVX2, AVX-VNNI, AVX-512 VNNI).",
        is_one_of(*DYNAMIC),
    )
    max_context: int | None = setting(
        None,
        "an int from 2, or None for the model's own",
        "Tokens of prompt and answer together that one request may have.",
        or_none(is_int(2)),
    )
    max_num_seqs: int = setting(
        16, "an int from 1 to 1024", "Requests that run at the same time.", is_int(1, 1024)
    )
    max_batch_tokens: int | None = setting(
        None,
        "an int from 1, or None for the largest prefill bucket",
        "Tokens of one prefill step; a longer prompt is prefilled in chunks.",
        or_none(is_int(1)),
    )
    overlap_schedule: str = setting(
        "auto",
        "'auto', 'on' or 'off'",
        "Plan and issue a step before the tokens of the last one have arrived, and take them from "
        "the device. `auto` does so on a GPU; on a CPU, which computes a step when it is issued, "
        "each token would only come one step later.",
        is_one_of("auto", "on", "off"),
    )
    page_size: int | None = setting(
        None,
        "a power of two from 1 to 1024, or None to derive it",
        "Tokens of one KV page. Derived: 16, or 256 on a GPU whose attention kernel wants that.",
        or_none(is_power_of_two(1024)),
    )
    kv_pages: int | None = setting(
        None,
        "an int from 2 (page 0 is the sink), or None to derive it",
        "Pages of the KV pool. Derived: enough for `max_num_seqs` full contexts, within "
        "`kv_bytes`.",
        or_none(is_int(2)),
    )
    kv_bytes: int | None = setting(
        None,
        "an int from 1, or None for 1 GiB on a CPU and what is free on a GPU",
        "Upper limit of the derived KV pool, in bytes. On a GPU it is by default what is left of "
        "`gpu_memory` after graphs are captured.",
        or_none(is_int(1)),
    )
    kv_prefault: bool = setting(
        False,
        "True or False",
        "Write to all of a CPU's KV pool at the start: all is resident then, a lack of memory "
        "shows at once, and no prompt pays for the first use of a page.",
        is_bool,
    )
    gpu_memory: float = setting(
        _GPU_MEMORY,
        "a number above 0, up to 1",
        "Share of the GPU's memory that may be in use, other processes included, where `kv_bytes` "
        "is derived. What is left serves pictures and batches larger than any so far.",
        lambda v: is_above_zero(v) and v <= 1,
    )
    sliding_pages: int | None = setting(
        None,
        "an int from 3 (page 0 is the sink), or None to derive it",
        "Pages of the pool of layers with a sliding window. Derived: the windows of `max_num_seqs` "
        "requests and one step's tokens, twice, so that cached prefixes find room.",
        or_none(is_int(3)),
    )
    prefix_cache: bool = setting(
        True,
        "True or False",
        "Keep the keys and values of what was computed, and start a prompt that begins alike "
        "(same text, same pictures) behind them.",
        is_bool,
    )
    encoder_cache_bytes: int = setting(
        256 << 20,
        "an int from 0",
        "Upper limit of the cache of encoded pictures, in bytes; 0 keeps none.",
        is_int(0),
    )
    max_encoder_tokens: int = setting(
        4096,
        "an int from 1",
        "Rows of pictures that one step may encode; a single larger picture still goes alone.",
        is_int(1),
    )
    prefill_buckets: tuple[int, ...] | None = setting(
        None,
        f"{BUCKETS}, or None for the default ladder",
        "Token counts for which a prefill graph is captured.",
        or_none(is_ladder),
        parse_ladder,
    )
    decode_buckets: tuple[int, ...] | None = setting(
        None,
        f"{BUCKETS}, or None for powers of two up to max_num_seqs",
        "Request counts for which a decode graph is captured.",
        or_none(is_ladder),
        parse_ladder,
    )
    padding_cost: str = setting(
        "measured",
        "'measured' or 'free'",
        "`measured` times eager runs and replays at a few sizes after capture, within 5 % of its "
        "time, and runs a batch eager where the padded replay would take longer; with `free` every "
        "batch that fits a bucket is replayed.",
        is_one_of(*COSTS),
    )
    padding_cost_seconds: float | None = setting(
        None,
        "a number above 0, or None for 5 % of the capture time",
        "Seconds that measuring the padding cost of one phase may take.",
        or_none(is_above_zero),
    )
    max_prefill_bucket: int = setting(
        1024,
        "an int from 1",
        "Where the default prefill ladder ends; not used with `prefill_buckets`.",
        is_int(1),
    )
    threads: int | None = setting(
        None,
        "an int from 1, or None for torch's own choice",
        "CPU threads of one operation.",
        or_none(is_int(1)),
    )
    seed: int = setting(
        0,
        "an int from 0",
        "Seed of the draws of requests that bring none of their own.",
        is_int(0),
    )
    trust_remote_code: bool = setting(
        False, "True or False", "Run Python code that a checkpoint brings along.", is_bool
    )
    cache_dir: Path = field(
        default_factory=_default_cache_dir,
        metadata=about(
            "a path",
            "Folder for what can be made again. Default: `FIRSTLIGHT_CACHE`, else "
            "`$XDG_CACHE_HOME/firstlight`, else `~/.cache/firstlight`.",
            lambda v: isinstance(v, Path),
            parse_path,
        ),
    )

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check_field(self, entry)
        self._check_pairs()

    @classmethod
    def from_options(
        cls, options: Mapping[str, object], environ: Mapping[str, str] | None = None
    ) -> EngineConfig:
        """A configuration from options as a command line or a caller's keywords give them.

        Args:
            options: field name -> value; None means "not given" and keeps the default.
            environ: environment to read; None is the process's own.

        Raises:
            ConfigError: an unknown name (with a suggestion), or a value or pair that is refused.
        """
        known = [entry.name for entry in fields(cls)]
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
                raise ConfigError(f"there is no setting {name!r}{hint}")
        if environ is not None:
            given.setdefault("cache_dir", cache_dir_from(environ))
        return cls(**given)  # type: ignore[arg-type]

    @property
    def graphs_off(self) -> bool:
        """Whether every step runs eager because it was asked for."""
        return self.eager or self.backend == "eager"

    @property
    def on_gpu(self) -> bool:
        """Whether the model runs on a CUDA device."""
        return self.device != "cpu"

    @property
    def chosen_backend(self) -> str:
        """:attr:`backend`, ``auto`` settled: ``tape``, ``cuda``, ``cuda-whole`` or ``eager``."""
        if self.backend != "auto":
            return self.backend
        return "cuda" if self.on_gpu else "tape"

    @property
    def page_tokens(self) -> int:
        """:attr:`page_size`; where it is not set, that of a CPU. A GPU's engine settles it."""
        return PAGE_SIZE if self.page_size is None else self.page_size

    def _check_pairs(self) -> None:
        self.check_media_pairs()
        if self.eager and self.backend not in ("auto", "eager"):
            refuse_pair("eager", True, "backend", self.backend, "nothing is captured")
        if self.backend.startswith("cuda") and not self.on_gpu:
            why = "CUDA graphs are captured on a GPU (device = 'cuda')"
            refuse_pair("backend", self.backend, "device", self.device, why)
        if self.gpu_memory != _GPU_MEMORY and not self.on_gpu:
            refuse_pair("gpu_memory", self.gpu_memory, "device", self.device, "there is no GPU")
        for name in ("prefill_buckets", "decode_buckets"):
            if self.graphs_off and getattr(self, name) is not None:
                off, value = ("eager", True) if self.eager else ("backend", self.backend)
                refuse_pair(off, value, name, getattr(self, name), "nothing is captured")
        if self.graphs_off and self.proof == "full":  # no default, so it was asked for
            off, value = ("eager", True) if self.eager else ("backend", self.backend)
            refuse_pair(off, value, "proof", self.proof, "no graph is there to prove")
        if self.decode_buckets and self.decode_buckets[-1] > self.max_num_seqs:
            why = "a larger batch never runs"
            refuse_pair(
                "decode_buckets", self.decode_buckets, "max_num_seqs", self.max_num_seqs, why
            )
        tokens = self.max_batch_tokens
        if tokens and tokens < self.max_num_seqs:
            why = "a step that decodes all requests has a token of each"
            refuse_pair("max_batch_tokens", tokens, "max_num_seqs", self.max_num_seqs, why)
        if tokens and self.prefill_buckets and self.prefill_buckets[-1] > tokens:
            why = "a larger step never runs"
            refuse_pair("prefill_buckets", self.prefill_buckets, "max_batch_tokens", tokens, why)
        # On a GPU pages may turn out larger; the memory plan looks again.
        if self.kv_pages and self.max_context and (self.page_size or not self.on_gpu):
            room = (self.kv_pages - 1) * self.page_tokens
            if room < self.max_context:
                why = f"pages of {self.page_tokens} beside the sink hold {room} tokens"
                refuse_pair("kv_pages", self.kv_pages, "max_context", self.max_context, why)


def _check_field(config: EngineConfig, entry: Field[object]) -> None:
    """Normalise one field, then check it; the configuration is frozen for everybody else."""
    given = getattr(config, entry.name)
    parse, accepted = entry.metadata["parse"], entry.metadata["accepted"]
    value = given if parse is None else parse(given)
    object.__setattr__(config, entry.name, value)
    if entry.metadata["check"](value):
        return
    raise ConfigError(f"{entry.name} = {given!r}; accepted: {accepted}")
