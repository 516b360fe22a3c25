"""What a server says when it starts: every setting, and where it came from."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.build import Parts
from firstlight.graphs import BucketState
from firstlight.server.keys import KeyRing
from firstlight.server.serve import key_ring, open_service
from firstlight.server.settings import ServerSettings
from firstlight.server.start_lines import start_lines

ORIGINS = {"max_num_seqs": "--max-num-seqs", "page_size": "fl.yaml:3", "port": "FIRSTLIGHT_PORT"}


def _lines(
    parts: Parts, settings: ServerSettings, origins: dict[str, str], verbose: bool = True
) -> list[str]:
    service = open_service(parts, settings)
    return list(start_lines(service, KeyRing([]), origins, verbose=verbose))


def test_a_start_is_a_screenful_unless_more_is_asked_for(parts: Parts) -> None:
    lines = _lines(parts, ServerSettings(), {}, verbose=False)
    assert len(lines) <= 20
    assert len(_lines(parts, ServerSettings(), {})) > len(lines)
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names[0] == "firstlight"
    assert {"settings", "memory", "kernels", "prefill", "decode", "keys"} <= set(names)
    assert "defaults" not in names


def test_a_graph_that_is_out_of_use_is_told_without_asking(parts: Parts) -> None:
    table = parts.runners[Phase.DECODE].buckets
    first = table.sizes[0]
    try:
        table.mark(first, BucketState.QUARANTINED, "wrong")
        lines = _lines(parts, ServerSettings(), {}, verbose=False)
    finally:
        table.mark(first, BucketState.READY)
    assert any(f"{first}: QUARANTINED" in line for line in lines)


def test_graphs_that_are_still_to_be_proven_are_counted(parts: Parts) -> None:
    table = parts.runners[Phase.PREFILL].buckets
    try:
        table.mark(table.largest, BucketState.UNPROVEN)
        lines = _lines(parts, ServerSettings(), {}, verbose=False)
    finally:
        table.mark(table.largest, BucketState.READY)
    assert any("1 more will be proven while nobody asks" in line for line in lines)


def test_what_was_given_stands_first_with_where_it_came_from(parts: Parts) -> None:
    lines = _lines(parts, ServerSettings(port=9000), ORIGINS)
    until = next(i for i, line in enumerate(lines) if line.startswith("defaults"))
    given = [line[11:] for line in lines[1:until]]
    assert lines[1].startswith("settings   ")
    assert "max_num_seqs=4 (--max-num-seqs)" in given
    assert "page_size=4 (fl.yaml:3)" in given
    assert "port=9000 (FIRSTLIGHT_PORT)" in given
    assert "dtype=float32" in given  # not as by default, and set from Python


def test_a_default_that_was_given_is_told_as_given(parts: Parts) -> None:
    lines = _lines(parts, ServerSettings(), {"host": "--host"})
    assert any(line.endswith("host=127.0.0.1 (--host)") for line in lines)


def test_every_setting_is_there_once(parts: Parts) -> None:
    text = " ".join(" ".join(_lines(parts, ServerSettings(), ORIGINS)).split())
    for owner in (EngineConfig, ServerSettings):
        for entry in fields(owner):
            assert text.count(f" {entry.name}=") == 1, entry.name


def test_memory_is_split_by_what_it_is_for(parts: Parts) -> None:
    text = " ".join(" ".join(_lines(parts, ServerSettings(), {})).split())
    memory = text.partition("memory ")[2].partition(" prefill ")[0]
    words = ("context", "weights", "kv", "slot", "in all", "beside that", "resident now")
    kinds = [f"{word} " for word in words]
    assert all(kind in memory for kind in kinds), memory


def test_the_kernels_are_named_with_the_reason_if_they_are_torchs(parts: Parts) -> None:
    lines = _lines(parts, ServerSettings(), {})
    found = " ".join(line[11:] for line in lines if line.startswith("kernels"))
    native = parts.native
    assert found.startswith("compiled for this CPU" if native.kernels else "torch's (")
    assert native.reason in found


@pytest.mark.parametrize(
    ("model", "quantization", "said"),
    [("/a/Model.GGUF", "none", True), ("/a/m.gguf", "int4", False), ("/a/m", "none", False)],
)
def test_a_gguf_file_whose_weights_are_widened_says_how_to_keep_them_in_fewer_bits(
    parts: Parts, model: str, quantization: str, said: bool
) -> None:
    config = replace(parts.config, model=model, quantization=quantization)
    native = replace(parts.native, kernels=cast(Any, SimpleNamespace(threads=1)))
    lines = _lines(replace(parts, config=config, native=native), ServerSettings(), {})
    hint = "weights of the GGUF file are held as float32; --quantization int4 or int8"
    assert (hint in " ".join(" ".join(lines).split())) is said


def test_keys_of_the_settings_open_the_server_and_are_not_shown(parts: Parts) -> None:
    settings = ServerSettings(api_keys=("hidden-key",))
    ring = key_ring(settings, {"FIRSTLIGHT_API_KEY": "other"})
    assert ring.opens("hidden-key")
    assert ring.opens("other")
    text = "\n".join(_lines(parts, settings, {"api_keys": "--api-key"}))
    assert "api_keys=(1, not shown) (--api-key)" in text
    assert "hidden-key" not in text
