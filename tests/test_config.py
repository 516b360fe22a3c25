"""The configuration checks each field once and names what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from firstlight.config import EngineConfig, cache_dir_from, option_variables, wait_briefly
from firstlight.errors import ConfigError
from firstlight.graphs.bucket import parse_ladder

_REFUSED: dict[str, list[object]] = {
    "model": ["", "  ", 3],
    "dtype": ["int8", None, "FLOAT32"],
    "device": ["tpu", "cuda:", "cuda:x", "CUDA", None],
    "eager": [1, "yes"],
    "padding_cost": ["guessed", True, None],
    "padding_cost_seconds": [0, -1.0, "5", True],
    "backend": ["cudagraph", ""],
    "proof": ["on", None],
    "sanitize": [1, "no"],
    "fuse": [0],
    "native": [True, "on", ""],
    "overlap_schedule": [True, "yes", "", None],
    "quantization": [None, "int2", "INT4"],
    "dynamic_quantization": [None, True, "int8"],
    "debug": [1, None],
    "sliding_pages": [2, 0, True],
    "prefix_cache": [1, None, "off"],
    "encoder_cache_bytes": [-1, None],
    "max_encoder_tokens": [0, None],
    "max_context": [1, 0, 2.0, True],
    "max_num_seqs": [0, 1025, "8"],
    "max_batch_tokens": [0, -1],
    "page_size": [0, 12, 2048, 16.0],
    "kv_pages": [1, 0],
    "kv_bytes": [0],
    "kv_prefault": [1, None],
    "gpu_memory": [0, -0.5, 1.01, "90%", True, None],
    "prefill_buckets": ["", "64,x", [64, 32], [64, 64], (0, 1), 64, [True, 2]],
    "decode_buckets": ["1,,2", [2, 1]],
    "max_prefill_bucket": [0, None],
    "threads": [0, 1.5],
    "seed": [-1, None],
    "trust_remote_code": ["no"],
    "allowed_media_domains": [7, [""], (1,), None],
    "allow_any_media_host": [1, "yes"],
    "trusted_media_networks": [7, (None,)],
    "media_ports": [(), 80, ["x"], (0,), (65536,), (True,)],
    "max_media_bytes": [0, 1.5],
    "media_redirects": [-1, 6],
    "media_background": ["", 7, None],
    "media_connect_seconds": [0, "5", True, float("inf")],
    "media_read_seconds": [-1.0, float("nan")],
    "media_fetch_seconds": [0.0, None],
    "allowed_media_root": [7, ""],
    "max_image_pixels": [0, None],
    "artifact_cache_bytes": [-1, None],
    "media_fetchers": [0, 257],
    "media_threads": [0, 257, 1.0],
    "trust_media_hashes": [0],
    "encoder_graphs": ["auto", True],
    "encoder_budgets": [(), "8,4", (0,), "many", 8],
    "limit_mm_per_prompt": [
        "2",
        "image=",
        "image=-1",
        "sound=1",
        '{"image": -1}',
        {"audio": 1},
        {"image": {}},
        [1],
    ],
    "mm_processor_kwargs": ["max_pixels=1", "[1]", {1: 2}, 3],
    "chat_template": [7, ""],
    "cache_dir": [7, ""],
}


def _build(**options: object) -> EngineConfig:
    return EngineConfig(**options)  # type: ignore[arg-type]


def test_every_field_has_values_that_are_refused() -> None:
    assert set(_REFUSED) == {entry.name for entry in fields(EngineConfig)}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in _REFUSED.items() for v in vs])
def test_a_refused_value_is_named_with_its_field_and_what_is_accepted(
    name: str, value: object
) -> None:
    accepted = next(e.metadata["accepted"] for e in fields(EngineConfig) if e.name == name)
    with pytest.raises(ConfigError) as caught:
        _build(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name} = {value!r}")
    assert message.endswith(f"accepted: {accepted}")


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({}, "tape"),
        ({"device": "cuda"}, "cuda"),
        ({"device": "cuda:1"}, "cuda"),
        ({"device": "cuda", "backend": "cuda-whole"}, "cuda-whole"),
        ({"device": "cuda", "backend": "tape"}, "tape"),
    ],
)
def test_the_backend_follows_the_device_unless_it_is_named(
    options: dict[str, object], backend: str
) -> None:
    assert _build(**options).chosen_backend == backend


@pytest.mark.parametrize(
    "options",
    [
        {"eager": True, "backend": "tape"},
        {"eager": True, "backend": "cuda"},
        {"gpu_memory": 0.5, "device": "cpu"},
        {"backend": "cuda"},
        {"backend": "cuda-whole", "device": "cpu"},
        {"allow_any_media_host": True, "allowed_media_domains": ("example.org",)},
        {"eager": True, "prefill_buckets": (64,)},
        {"eager": True, "decode_buckets": (1,)},
        {"eager": True, "proof": "full"},
        {"backend": "eager", "proof": "full"},
        {"decode_buckets": (1, 16), "max_num_seqs": 8},
        {"prefill_buckets": (64, 256), "max_batch_tokens": 128},
        {"kv_pages": 4, "max_context": 100},
    ],
)
def test_a_contradiction_names_both_fields_and_both_values(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="contradict each other") as caught:
        _build(**options)
    for name, value in options.items():
        assert f"{name} = {value!r}" in str(caught.value)


def test_pages_that_hold_the_context_exactly_are_accepted() -> None:
    assert _build(kv_pages=8, page_size=16, max_context=112).kv_pages == 8


@pytest.mark.parametrize("value", ["64,128,256", " 64, 128 ,256", [64, 128, 256], (64, 128, 256)])
def test_buckets_are_read_from_text_or_lists(value: object) -> None:
    assert _build(prefill_buckets=value).prefill_buckets == (64, 128, 256)


@pytest.mark.parametrize("text", ["128,16", "16, 128,16"])
def test_typed_buckets_may_stand_in_any_order(text: str) -> None:
    assert _build(prefill_buckets=text).prefill_buckets == parse_ladder(text) == (16, 128)


@pytest.mark.parametrize("value", ["a.org, .b.org", ["a.org", ".b.org"], ("a.org", ".b.org")])
def test_domains_are_read_from_text_or_lists(value: object) -> None:
    assert _build(allowed_media_domains=value).allowed_media_domains == ("a.org", ".b.org")


@pytest.mark.parametrize(
    ("value", "ports"), [("80, 8443", (80, 8443)), ([8080], (8080,)), ("any", None), (None, None)]
)
def test_ports_are_read_from_text_or_lists(value: object, ports: object) -> None:
    assert _build(media_ports=value).media_ports == ports


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        ('{"image": 2}', {"image": 2}),
        ("image=2,video=0", {"image": 2, "video": 0}),
        ({"image": 2, "video": 0}, {"image": 2, "video": 0}),
        ('{"image": {"count": 2, "width": 512}}', {"image": 2}),
        (None, None),
    ],
)
def test_limits_of_media_are_read_from_text_or_mappings(value: object, limits: object) -> None:
    assert _build(limit_mm_per_prompt=value).limit_mm_per_prompt == limits


@pytest.mark.parametrize("name", ["half", "fp16", "float16"])
def test_types_have_the_names_that_people_use(name: str) -> None:
    assert _build(dtype=name).dtype == "float16"


def test_variables_of_options_are_those_of_the_program_that_are_not_empty() -> None:
    environ = {"FIRSTLIGHT_B": "2", "FIRSTLIGHT_A": "1", "FIRSTLIGHT_C": "", "OTHER_A": "3"}
    assert list(option_variables(environ).items()) == [("FIRSTLIGHT_A", "1"), ("FIRSTLIGHT_B", "2")]


def test_settings_about_pictures_are_typed_like_all_others() -> None:
    config = EngineConfig.from_options({"allowed_media_root": "~/pictures", "media_threads": 3})
    assert config.allowed_media_root == Path.home() / "pictures"
    assert config.media_threads == 3


def test_a_path_is_accepted_as_the_model() -> None:
    assert _build(model=Path("/models/a")).model == "/models/a"


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        EngineConfig().eager = True  # type: ignore[misc]


def test_options_that_were_not_given_keep_their_defaults() -> None:
    config = EngineConfig.from_options({"dtype": None, "page_size": 32}, {"HOME": "/home/a"})
    assert (config.dtype, config.page_size) == ("auto", 32)


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="no setting 'max_contex'; did you mean 'max_context'"):
        EngineConfig.from_options({"max_contex": 1})


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"FIRSTLIGHT_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/h"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/h"}, "/b/firstlight"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/firstlight"),
        ({"FIRSTLIGHT_CACHE": "", "HOME": "/h"}, "/h/.cache/firstlight"),
    ],
)
def test_the_cache_folder_comes_from_the_environment(environ: dict[str, str], folder: str) -> None:
    assert cache_dir_from(environ) == Path(folder)
    assert EngineConfig.from_options({}, environ).cache_dir == Path(folder)


def test_a_given_cache_folder_beats_the_environment() -> None:
    config = EngineConfig.from_options({"cache_dir": "/c"}, {"FIRSTLIGHT_CACHE": "/a"})
    assert config.cache_dir == Path("/c")


def test_importing_the_configuration_does_not_import_torch() -> None:
    code = "import sys, firstlight.config; sys.exit('torch' in sys.modules)"
    source = str(Path(__file__).parents[1] / "src")
    environ = os.environ | {"PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", code], env=environ, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"buckets": [16, 64], "waste": {"rows": 0.1}}'),
        ("a.json", "[16, 64]"),
        ("a.txt", "16\n64\n"),
        ("buckets", "# for pictures\n16, 64  # and more\n"),
    ],
)
def test_buckets_may_be_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert EngineConfig(prefill_buckets=str(path)).prefill_buckets == (16, 64)  # type: ignore[arg-type]
    assert EngineConfig(prefill_buckets=path).prefill_buckets == (16, 64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sizes": [16]}', "holds None"),
        ("[16, 16]", r"holds \(16, 16\)"),
        ("64 16", r"holds \(64, 16\)"),
        ("16 many", r"holds \(16, 'many'\)"),
        ("[16,", "is no JSON"),
        ("", r"holds \(\)"),
        ("[true]", "holds"),
    ],
)
def test_a_bucket_file_that_holds_something_else_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "buckets.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        EngineConfig(prefill_buckets=path)  # type: ignore[arg-type]


def test_a_bucket_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"plans/none\.json cannot be read"):
        EngineConfig(prefill_buckets="plans/none.json")  # type: ignore[arg-type]


def test_openmp_spins_briefly_unless_the_user_says_otherwise() -> None:
    for mine in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}):
        said = dict(mine)
        wait_briefly(said)
        assert said == mine
    unset: dict[str, str] = {}
    wait_briefly(unset)
    assert unset == {"GOMP_SPINCOUNT": "5000"}
