"""Tokenizers of the three kinds in use, small enough to build in a test."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tools.tiny.vocabulary import IDEFICS, LLAVA, MISTRAL, QWEN_VL, TEXT, build_tokenizer
from transformers import PreTrainedTokenizerFast

BYTE_LEVEL = {
    "qwen": QWEN_VL,
    "text": TEXT,
    "llava": LLAVA,
    "idefics": IDEFICS,
    "mistral": MISTRAL,
}
PLACEHOLDERS = {
    "qwen": "<|image_pad|>",
    "llava": "<image>",
    "idefics": "<image>",
    "mistral": "[IMG]",
}


@lru_cache
def byte_level(name: str) -> Any:
    """Byte-level BPE with the special tokens and chat template of a family."""
    return build_tokenizer(BYTE_LEVEL[name])


_WORDS = ("▁", "▁hi", "hi", "▁there", "there", "e", "h", "i", "r", "t", ".", "<", "s", ">", "\n")
_TEMPLATE = (
    "<s>{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@lru_cache
def sentencepiece_like(scheme: str) -> Any:
    """BPE over words that begin with ``▁``, unknown characters as bytes.

    Args:
        scheme: where the blank before the first word comes from: ``first`` or ``always`` (a
            pre-tokenizer), or ``prepend`` (a normalizer, as in the oldest of them).
    """
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for token in [f"<0x{byte:02X}>" for byte in range(256)] + [*_WORDS, "th", "▁h", "▁t"]:
        vocabulary[token] = len(vocabulary)
    merges = [("▁", "h"), ("▁h", "i"), ("h", "i"), ("▁", "t")]
    core = Tokenizer(
        models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    if scheme == "prepend":
        core.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    core.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
