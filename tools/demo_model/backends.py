"""Two ways to ask the exported checkpoint: firstlight itself, and plain transformers."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer, Qwen3VLForConditionalGeneration

LONGEST_ANSWER = 48


def messages(picture: Image.Image | None, question: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": question}]
    if picture is not None:
        parts.insert(0, {"type": "image", "image": picture})
    return [{"role": "user", "content": parts}]


class Backend(Protocol):
    def answer(self, picture: Image.Image | None, question: str) -> str: ...


class FirstlightBackend:
    def __init__(self, model: Path) -> None:
        from firstlight import LLM, SamplingParams

        self._llm = LLM(str(model))
        self._sampling = SamplingParams(temperature=0, max_tokens=LONGEST_ANSWER)

    def answer(self, picture: Image.Image | None, question: str) -> str:
        return self._llm.chat(messages(picture, question), self._sampling).text


class TransformersBackend:
    def __init__(self, model: Path, zero_deepstack: bool, float32: bool) -> None:
        dtype = torch.float32 if float32 else "auto"
        self._model = Qwen3VLForConditionalGeneration.from_pretrained(model, dtype=dtype).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._processor = AutoImageProcessor.from_pretrained(model)
        if zero_deepstack:
            self._zero_deepstack()

    def _zero_deepstack(self) -> None:
        def unchanged(self: Any, hidden: torch.Tensor, *_: object) -> torch.Tensor:
            return hidden

        text = self._model.model.language_model
        text._deepstack_process = types.MethodType(unchanged, text)

    @torch.inference_mode()
    def answer(self, picture: Image.Image | None, question: str) -> str:
        prompt = self._tokenizer.apply_chat_template(
            messages(picture, question), tokenize=False, add_generation_prompt=True
        )
        inputs: dict[str, Any] = {}
        if picture is not None:
            inputs = dict(self._processor(images=[picture], return_tensors="pt"))
            count = int(inputs["image_grid_thw"].prod()) // 4
            prompt = prompt.replace("<|image_pad|>", "<|image_pad|>" * count)
        ids = self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        if picture is not None:
            picture_token = self._tokenizer.convert_tokens_to_ids("<|image_pad|>")
            inputs["mm_token_type_ids"] = (ids == picture_token).int()
        output = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=LONGEST_ANSWER,
            do_sample=False,
            **inputs,
        )
        said = output[0, ids.shape[1] :]
        return str(self._tokenizer.decode(said, skip_special_tokens=True))


def build_backend(name: str, model: Path, zero_deepstack: bool, float32: bool) -> Backend:
    if name == "transformers":
        return TransformersBackend(model, zero_deepstack, float32)
    if zero_deepstack or float32:
        raise SystemExit("--zero-deepstack and --float32 need --backend transformers")
    return FirstlightBackend(model)
