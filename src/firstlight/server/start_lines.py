"""What a server says when it starts: its settings, its memory, its graphs, and warnings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from firstlight import __version__
from firstlight.core.reason import Phase
from firstlight.engine.accounting import Weights, describe_bytes
from firstlight.engine.build import Parts
from firstlight.engine.resident import Resident, resident
from firstlight.server.keys import KeyRing
from firstlight.server.service import Service

_WIDTH = 100
_UNITS = ("B", "KiB", "MiB", "GiB")


def start_lines(
    service: Service,
    keys: KeyRing,
    origins: Mapping[str, str] | None = None,
    *,
    verbose: bool = False,
) -> Iterator[str]:
    """The lines, in order; no key is in them.

    Args:
        origins: settings field -> the option, variable or line of a file that its value is from.
        verbose: also the settings that are as by default, memory by kind, and each graph.
    """
    parts = service.parts
    adapter = parts.model.adapter
    dtype = str(adapter.dtype).removeprefix("torch.")
    yield (
        f"firstlight {__version__}: {parts.model.name} ({adapter.architecture}, {dtype}, "
        f"{adapter.device}), served as {', '.join(service.model.names)}"
    )
    changed, usual = _settings((parts.config, service.settings), origins or {})
    for i, line in enumerate(changed or ["all as by default"]):
        yield f"{'' if i else 'settings':<11}{line}"
    if verbose:
        yield from _block("defaults", usual)
    yield from _block("memory", _memory(parts, verbose))
    if parts.gpu is not None:
        yield from _block("gpu", parts.gpu.memory.lines())
    yield from _block("kernels", [parts.native.sentence(), *_widened(parts)])
    for phase in Phase:
        yield from _block(phase.value, _graphs(parts, phase, verbose))
    if not keys:
        yield "keys       none: whoever can connect is served"
        host = service.settings.host
        if not service.settings.is_local:
            yield f"WARNING    others can reach {host}, and no key is needed"
    else:
        yield f"keys       {len(keys)}"


def _widened(parts: Parts) -> list[str]:
    """For a GGUF file whose weights could stay in few bits: how."""
    config = parts.config
    if not config.model.lower().endswith(".gguf") or config.quantization != "none":
        return []
    if parts.native.kernels is None:
        return []
    held = str(parts.model.adapter.dtype).removeprefix("torch.")
    return [
        f"weights of the GGUF file are held as {held}; --quantization int4 or int8 keeps them in "
        "fewer bits"
    ]


def _block(name: str, items: list[str]) -> Iterator[str]:
    lines = textwrap.wrap(" · ".join(items), _WIDTH - 11, break_on_hyphens=False)
    for i, line in enumerate(lines):
        yield f"{name if i == 0 else '':<11}{line}"


def _settings(configs: tuple[Any, ...], origins: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The settings that are not as by default, with where they came from; and all others."""
    changed, usual = [], []
    for config in configs:
        for entry in fields(config):
            value, where = getattr(config, entry.name), origins.get(entry.name)
            shown = f"({len(value)}, not shown)" if entry.metadata["secret"] else _text(value)
            if where is not None:
                changed.append(f"{entry.name}={shown} ({where})")
            elif value != entry.default and entry.name != "cache_dir":
                changed.append(f"{entry.name}={shown}")
            else:
                usual.append(f"{entry.name}={shown}")
    return changed, usual


def _text(value: object) -> str:
    """A value as it would be typed."""
    return ",".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _memory(parts: Parts, verbose: bool) -> list[str]:
    plan = parts.memory
    limit = f" (by {plan.limit})" if plan.limit else ""
    rows = describe_bytes(parts.ledger)
    sums = {row["kind"]: row["bytes"] for row in rows if row["phase"] is None}
    beside, packed = sums.pop("all"), sums.pop("packed weights", 0)
    weights = Weights.of(parts.model.adapter.model).total
    now = resident(parts)
    seen = [] if now is None else [_resident(now)]
    encoded, prepared = parts.encoder_cache.capacity_bytes, parts.config.artifact_cache_bytes
    caches = (
        f"beside that up to {size(encoded)} of encoded and {size(prepared)} of prepared pictures"
    )
    context = [
        f"context {plan.max_context}{limit}",
        f"{plan.n_pages} pages of {plan.page_size} tokens",
    ]
    total = f"in all {size(weights + beside - packed)}"
    if not verbose:
        return [*context, f"weights {size(weights)}", total, *seen]
    return [
        *context,
        f"weights {size(weights)}",
        *(f"{kind} {size(n)}" for kind, n in sums.items() if n),
        total,
        *([] if parts.pipeline is None else [caches]),
        *seen,
    ]


def _resident(now: Resident) -> str:
    """What of it is in memory already."""
    return (
        f"resident now {size(now.now)}: weights {size(now.weights)}, kv {size(now.kv)}, "
        f"buffers {size(now.buffers)}, libraries and the rest {size(now.rest)}; "
        f"the start took up to {size(now.peak)}"
    )


def _graphs(parts: Parts, phase: Phase, verbose: bool) -> list[str]:
    """What the buckets took, or each of them; what went wrong and what is left come first."""
    report = parts.captures[phase]
    table = parts.runners[phase].buckets
    if not table.sizes or parts.config.graphs_off:
        return ["eager"]
    wrong = [
        f"{n}: {table.state(n).value.upper()}"
        for n in table.sizes
        if table.state(n).value in ("failed", "quarantined")
    ]
    each = [
        f"{bucket.bucket}: {bucket.seconds:.2f} s" + (f" {size(n)}" if (n := bucket.bytes) else "")
        for bucket in sorted(report.buckets, key=lambda b: b.bucket)
    ]
    total = f"{len(each)} graphs in {report.seconds:.2f} s, {size(report.bytes)}"
    late = len(parts.runners[phase].late)
    left = [f"{late} more will be proven while nobody asks"] if late else []
    return [total, *wrong, *left, *(each if verbose else ())]


def size(n_bytes: float) -> str:
    """Bytes for people."""
    for unit in _UNITS:
        if n_bytes < 1024 or unit == _UNITS[-1]:
            break
        n_bytes /= 1024
    return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
