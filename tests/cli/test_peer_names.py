"""What users of other servers type does what they mean, or says what to type."""

from __future__ import annotations

import pytest
from tests.cli.test_serve import Started, no_variables, started

from firstlight.cli.main import main

__all__ = ["no_variables", "started"]
Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "field", "value"),
    [
        ("--max-model-len 512", "max_context", 512),
        ("-c 512", "max_context", 512),
        ("--ctx-size 512", "max_context", 512),
        ("--context-length 512", "max_context", 512),
        ("--enforce-eager", "eager", True),
        ("--disable-cuda-graph", "eager", True),
        ("-np 3", "max_num_seqs", 3),
        ("--max-running-requests 3", "max_num_seqs", 3),
        ("--max-num-batched-tokens 99", "max_batch_tokens", 99),
        ("--chunked-prefill-size 99", "max_batch_tokens", 99),
        ("--block-size 8", "page_size", 8),
        ("--device cuda --gpu-memory-utilization 0.8", "gpu_memory", 0.8),
        ("--disable-radix-cache", "prefix_cache", False),
        ("--no-enable-prefix-caching", "prefix_cache", False),
        ("--enable-prefix-caching", "prefix_cache", True),
        ("--async-scheduling", "overlap_schedule", "on"),
        ("--no-async-scheduling", "overlap_schedule", "off"),
        ("--disable-overlap-schedule", "overlap_schedule", "off"),
        ("--mm-processor-cache-gb 0.5", "artifact_cache_bytes", 1 << 29),
        ("--allowed-media-domain a --allowed-media-domain b", "allowed_media_domains", ("a", "b")),
        ("--cuda-graph-bs 1,2", "decode_buckets", (1, 2)),
        ("--model-path some/model", "model", "some/model"),
        ("--dtype half", "dtype", "float16"),
        ('--limit-mm-per-prompt {"image":2}', "limit_mm_per_prompt", {"image": 2}),
        (
            '--limit-mm-per-prompt {"image":{"count":2},"video":0}',
            "limit_mm_per_prompt",
            {"image": 2, "video": 0},
        ),
        ('--mm-processor-kwargs {"max_pixels":9}', "mm_processor_kwargs", {"max_pixels": 9}),
    ],
)
def test_an_equal_meaning_sets_the_engines_setting(
    typed: str, field: str, value: object, started: Started
) -> None:
    assert main(["serve", *typed.split(" ")]) == 0
    assert getattr(started[0][0], field) == value


def test_equal_meanings_set_the_servers_settings(started: Started) -> None:
    typed = ["--alias", "a", "--allowed-origins", '["https://a", "https://b"]', "--jinja"]
    typed += ["--api-key", "one", "--api-key", "two", "--tensor-parallel-size", "1", "--metrics"]
    assert main(["serve", *typed]) == 0
    settings = started[0][1]
    assert settings.served_model_name == ("a",)
    assert settings.cors_origins == ("https://a", "https://b")
    assert settings.api_keys == ("one", "two")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--mem-fraction-static 0.8", "--mem-fraction-static: --gpu-memory is the share"),
        ("--gpu-memory-utilization 0.8", "gpu_memory = 0.8"),
        ("--gpu-memory-utilization 1.5", "gpu_memory = 1.5; accepted: a number above 0, up to 1"),
        ("-tp 2", "-tp: the model runs in one process"),
        ("-ngl 99", "where --device says"),
        ("--compilation-config {}", "--buckets and --decode-buckets"),
        ("--quantization awq", "'none', 'int8' or 'int4'"),
        ("-q fp8", "'none', 'int8' or 'int4'"),
        ("--mmproj a.gguf", "--mmproj: a GGUF file is served as a text model"),
        ("--vision-cache-size 5", "--encoder-cache-bytes"),
        ("--swa-full", "--sliding-pages"),
        ("--no-enable-chunked-prefill", "--max-batch-tokens"),
        ('--limit-mm-per-prompt {"audio":2}', "limit_mm_per_prompt = "),
        ("--mm-processor-kwargs 5", "mm_processor_kwargs = "),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_use(
    typed: str, message: str, started: Started, capsys: Capsys
) -> None:
    assert main(["serve", *typed.split()]) == 2
    assert message in capsys.readouterr().err
    assert started == []


def test_two_names_of_one_setting_may_agree_and_not_contradict(
    started: Started, capsys: Capsys
) -> None:
    assert main(["serve", "--max-context", "64", "--max-model-len", "64"]) == 0
    assert main(["serve", "--max-context", "64", "--max-model-len", "65"]) == 2
    assert "--max-context and --max-model-len give one setting two values" in (
        capsys.readouterr().err
    )
