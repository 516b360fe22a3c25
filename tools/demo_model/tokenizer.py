"""Byte-level BPE with Qwen's special tokens, trained on the demo's own sentences."""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from pictures import SIZES, random_scene
from questions import KINDS, ask
from small_talk import corpus
from vocabulary import CHARACTERS

SPECIAL: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE: Final = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] %}
{%- if part['type'] in ('image', 'image_url', 'input_image') %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'video' %}
{{- '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif 'text' in part %}
{{- part['text'] }}
{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def _sentences(seed: int) -> list[str]:
    """Questions and answers with the rendered characters removed.

    Rendered text stays one token per character, so that the model reads letter by letter.
    """
    rng = random.Random(seed)
    lines = corpus() * 20 + ["user\n", "assistant\n", "system\n"] * 50
    for _ in range(6000):
        scene = random_scene(rng, rng.choice(SIZES))
        question = ask(rng, scene, rng.choice(KINDS))
        if question is None:
            continue
        answer = question.answer
        if scene.label is not None:
            answer = answer.replace(scene.label.text, "")
        lines += [question.text, answer]
    return lines


def train_tokenizer(seed: int = 0, vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(seed), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL[1:]),
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokenizer = train_tokenizer(arguments.seed)
    tokenizer.save_pretrained(arguments.folder)
    spelled = tokenizer.tokenize("HELLO 42")
    print(f"{len(tokenizer)} tokens; HELLO 42 -> {spelled}; characters {len(CHARACTERS)}")


if __name__ == "__main__":
    main()
