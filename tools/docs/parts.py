"""The parts of the documentation that are generated from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from functools import partial
from typing import Any

from tools.docs import commands, faults, request
from tools.docs.api import reference
from tools.docs.figures import figures
from tools.docs.fusing import fusing
from tools.docs.load import load_incidents, load_run
from tools.docs.markdown import table
from tools.docs.memory import memory
from tools.docs.pages import ROOT
from tools.docs.peers import peers
from tools.docs.prefill import prefill
from tools.docs.quality import quality
from tools.docs.threads import threads

from firstlight import errors
from firstlight.config import EngineConfig
from firstlight.core.reason import Reason
from firstlight.core.sampling_params import SamplingParams
from firstlight.graphs.backends.cuda import last_run
from firstlight.media_settings import MediaSettings


def gpu() -> str:
    """Where CUDA was last run, from the record that gpu-check writes."""
    return f"CUDA: **{last_run()}**."


def settings() -> str:
    """Every field of the configuration but those about pictures."""
    media = {entry.name for entry in fields(MediaSettings)}
    return _settings([entry for entry in fields(EngineConfig) if entry.name not in media])


def media_settings() -> str:
    """Every field of the configuration about pictures."""
    return _settings(fields(MediaSettings))


def _settings(entries: Iterable[Field[Any]]) -> str:
    rows = []
    for entry in entries:
        default = "" if entry.name == "cache_dir" else f"`{entry.default!r}`"
        rows.append((f"`{entry.name}`", default, entry.metadata["accepted"], entry.metadata["doc"]))
    return table(("field", "default", "accepted", "meaning"), rows)


def server_settings() -> str:
    """Every field of the server's settings."""
    from firstlight.server.settings import ServerSettings

    return _settings(fields(ServerSettings))


def reasons() -> str:
    """Every reason code."""
    return table(("reason", "meaning"), ((f"`{r.value}`", r.meaning) for r in Reason))


def findings() -> str:
    """Every kind of fault that the sanitizer reports."""
    from firstlight.graphs.sanitizer import FindingKind

    return table(("kind", "meaning"), ((f"`{k.value}`", k.meaning) for k in FindingKind))


def demo_pictures() -> str:
    """The shipped pictures with the right answers and the bundled model's."""
    from firstlight.demo import pictures

    rows = [
        (
            f"![{p.path.stem}](../{p.path.relative_to(ROOT)})",
            p.question,
            p.expected,
            p.actual if p.actual == p.expected else f"**{p.actual}**",
            "yes" if p.in_distribution else "no",
        )
        for p in pictures()
    ]
    header = ("picture", "question", "right answer", "the model's answer", "like its training")
    return table(header, rows)


def sampling() -> str:
    """Every field of the sampling parameters, described by the class's own docstring."""
    attributes = inspect.cleandoc(SamplingParams.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w[\w, ]*): (.+?)(?=^    \w|\Z)", attributes, re.M | re.S)
    described = {name: text for names, text in entries for name in names.split(", ")}
    rows = [
        (f"`{f.name}`", f"`{f.default!r}`", " ".join(described[f.name].split()))
        for f in fields(SamplingParams)
    ]
    return table(("field", "default", "meaning"), rows)


def error_tree() -> str:
    """The exception tree, as errors.py opens with it."""
    tree = (errors.__doc__ or "").partition("::\n")[2]
    return f"```\n{inspect.cleandoc(tree)}\n```"


def architectures() -> str:
    """Every architecture that is served, by the built-in adapter that serves it."""
    from firstlight.models.adapter import Adapter
    from firstlight.models.registry import AdapterRegistry

    registry = AdapterRegistry(entry_points=False)
    served: dict[type[Adapter], list[str]] = {}
    for name in registry.architectures:
        served.setdefault(registry.entry(name).adapter, []).append(f"`{name}`")
    # Text decoders, which the base serves, come last.
    adapters = sorted(served, key=lambda adapter: (adapter is Adapter, adapter.__name__))
    rows = []
    for adapter in adapters:
        text = "Text decoders." if adapter is Adapter else _first_sentence(adapter)
        rows.append((f"`{adapter.__name__}`", text, ", ".join(served[adapter])))
    return table(("adapter", "what it serves", "architectures"), rows)


def _first_sentence(described: type) -> str:
    text = " ".join(inspect.cleandoc(described.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text)[0].replace("``", "`")


PARTS: Mapping[str, Callable[[], str]] = {
    "api-graphs": partial(reference, "firstlight.graphs"),
    "api-proof": partial(reference, "firstlight.graphs.proof"),
    "api-sanitizer": partial(reference, "firstlight.graphs.sanitizer"),
    "architectures": architectures,
    "commands": commands.commands,
    "demo-pictures": demo_pictures,
    "errors": error_tree,
    "figures": figures,
    "gpu": gpu,
    "quality": quality,
    "fusing": fusing,
    "peers": peers,
    "faults": faults.caught,
    "faults-impossible": faults.impossible,
    "faults-tally": faults.tally,
    "faults-uncaught": faults.uncaught,
    "findings": findings,
    "load-incidents": load_incidents,
    "load-run": load_run,
    "media-settings": media_settings,
    "peer-names": commands.peer_names,
    "prefill": prefill,
    "reasons": reasons,
    "request-chat": request.chat,
    "request-completions": request.completions,
    "request-detokenize": request.detokenize,
    "request-responses": request.responses,
    "request-tokenize": request.tokenize,
    "server-metrics": request.metrics,
    "sampling": sampling,
    "server-settings": server_settings,
    "settings": settings,
    "resident": memory,
    "threads": threads,
}
