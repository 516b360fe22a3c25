"""Tokenizer and chat template of a tiny checkpoint: byte-level BPE and special tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 352
"""Entries of the trained part (256 bytes and merges); special tokens come after it."""

_CORPUS = (
    "What is in this picture? What colour is the square? How many circles are there? "
    "The red square is to the left of the blue circle. There are two green triangles. "
    "Describe the picture. Compare the two pictures. Read the text in the picture.\n\n"
    "system user assistant User Assistant: You are a helpful assistant.\n"
)

_ROLE_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGEVIDEO{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PLAIN_TURNS = (
    "{% for m in messages %}{{ m.role | upper }}: "
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<image>\n{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_UTTERANCES = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}: "
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_INSTRUCTIONS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}[IMG]{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
_MODEL_TURNS = (
    "{{ bos_token }}{% for m in messages %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


@dataclass(frozen=True)
class Vocabulary:
    """Special tokens in id order and what the tokenizer's configuration says about them.

    Attributes:
        added: further tokens, ordinary text spelled as one; their ids come last.
    """

    special: tuple[str, ...]
    eos: str
    chat_template: str
    bos: str | None = None
    pad: str | None = None
    extra: dict[str, str] = field(default_factory=dict)
    added: tuple[str, ...] = ()

    def id_of(self, token: str) -> int:
        """The id of a special token; they follow the trained vocabulary in order."""
        return VOCABULARY + self.special.index(token)

    @property
    def size(self) -> int:
        """Rows of the embedding, rounded up to a multiple of 16."""
        return -(-(VOCABULARY + len(self.special) + len(self.added)) // 16) * 16


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN_VISION = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TILES = tuple(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7))


def chatml(*special: str, image: str = "", video: str = "", **extra: str) -> Vocabulary:
    """Turns between ``<|im_start|>`` and ``<|im_end|>``.

    Args:
        image, video: what one becomes; without ``video`` the template knows nothing of videos.
    """
    case = f"{{% elif c.type == 'video' %}}{video}" if video else ""
    return Vocabulary(
        special=_CHATML + special,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template=_ROLE_TURNS.replace("IMAGE", image).replace("VIDEO", case),
        extra=extra,
    )


TEXT = chatml()
QWEN_VL = chatml(
    *_QWEN_VISION,
    image="<|vision_start|><|image_pad|><|vision_end|>",
    video="<|vision_start|><|video_pad|><|vision_end|>",
)
ONEVISION = chatml("<image>", "<video>", image="<image>\n")
INTERNVL = chatml(
    "<img>",
    "</img>",
    "<IMG_CONTEXT>",
    "<video>",
    image="<IMG_CONTEXT>\n",
    start_image_token="<img>",
    end_image_token="</img>",
    context_image_token="<IMG_CONTEXT>",
    video_token="<video>",
)
LLAVA = Vocabulary(
    special=("<unk>", "<s>", "</s>", "<image>", "<pad>"),
    bos="<s>",
    eos="</s>",
    pad="<pad>",
    chat_template=_PLAIN_TURNS,
)
IDEFICS = Vocabulary(
    special=(
        "<|im_start|>",
        "<|im_end|>",
        "<end_of_utterance>",
        "<fake_token_around_image>",
        "<image>",
        "<global-img>",
        *_TILES,
    ),
    eos="<end_of_utterance>",
    pad="<|im_end|>",
    chat_template=_UTTERANCES,
)
MISTRAL = Vocabulary(
    special=(
        "<unk>",
        "<s>",
        "</s>",
        "<pad>",
        "[INST]",
        "[/INST]",
        "[IMG]",
        "[IMG_BREAK]",
        "[IMG_END]",
    ),
    bos="<s>",
    eos="</s>",
    pad="<pad>",
    chat_template=_INSTRUCTIONS,
)
GEMMA = Vocabulary(
    special=(
        "<pad>",
        "<eos>",
        "<bos>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
    ),
    bos="<bos>",
    eos="<end_of_turn>",
    pad="<pad>",
    chat_template=_MODEL_TURNS,
    extra={
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
    # A run of newlines is one token, so what stands around an image changes how it is spelled.
    added=("\n\n", "\n\n\n", "\n\n\n\n"),
)


def build_tokenizer(vocabulary: Vocabulary) -> Any:
    """A ``PreTrainedTokenizerFast`` of the vocabulary, with its chat template; deterministic."""
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([_CORPUS], trainer)
    if core.get_vocab_size() != VOCABULARY:
        raise ValueError(f"the corpus gives {core.get_vocab_size()} entries, not {VOCABULARY}")
    core.add_special_tokens([AddedToken(t, special=True) for t in vocabulary.special])
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in vocabulary.added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=vocabulary.eos,
        bos_token=vocabulary.bos,
        pad_token=vocabulary.pad,
        extra_special_tokens=vocabulary.extra,
    )
    tokenizer.chat_template = vocabulary.chat_template
    return tokenizer
