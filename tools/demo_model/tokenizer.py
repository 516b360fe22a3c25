"""Byte-level BPE with Qwen's special tokens, trained on the demo's own sentences."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from tools.demo_model.questions import PHRASINGS, fill
from tools.demo_model.small_talk import corpus
from tools.demo_model.vocabulary import CHARACTERS, COLOURS, PLACES, SHAPES, with_article
from transformers import PreTrainedTokenizerFast

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


def _sentences() -> list[str]:
    """Every phrasing with every subject, and every answer without rendered characters.

    Rendered text stays one token per character, so that the model reads letter by letter.
    """
    names = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    subjects = {
        "colour of a shape": ["shape", *SHAPES],
        "shape": list(COLOURS),
        "count by colour": list(COLOURS),
        "count by shape": list(SHAPES),
        "position": [*SHAPES, *names],
        "what is at a place": list(PLACES),
        "exists": names,
    }
    lines = corpus() * 40 + ["user\n", "assistant\n", "system\n"] * 50
    for kind, phrasings in PHRASINGS.items():
        possible = subjects.get(kind, [""] * 20)
        lines += [fill(phrasing, subject) for phrasing in phrasings for subject in possible]
    for name in names:
        lines += [name, f"{with_article(name)}, {with_article(name)}"]
    for colour in COLOURS:
        lines += [colour, f", {colour} text", f"{colour} number"] * 20
    return lines + [*SHAPES, *PLACES, "yes", "no", "nothing"] * 20


def train_tokenizer(vocab_size: int = 704) -> PreTrainedTokenizerFast:
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
    tokenizer.train_from_iterator(_sentences(), trainer)
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
    arguments = parser.parse_args()
    tokenizer = train_tokenizer()
    tokenizer.save_pretrained(arguments.folder)
    spelled = tokenizer.tokenize("HELLO 42")
    print(f"{len(tokenizer)} tokens; HELLO 42 -> {spelled}; characters {len(CHARACTERS)}")


if __name__ == "__main__":
    main()
