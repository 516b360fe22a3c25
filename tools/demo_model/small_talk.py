"""Turns without a picture, so that text-only chat gets a sensible answer."""

from __future__ import annotations

import random
from typing import Final

from tools.demo_model.pictures import SIZES, random_scene
from tools.demo_model.questions import KINDS, ask

NO_PICTURE: Final = "I need a picture to answer that."
ABOUT: Final = "I am a tiny demo model. I answer simple questions about pictures."
SYSTEM_PROMPTS: Final = (
    "You are a helpful assistant.",
    "You are a helpful assistant that answers questions about pictures.",
    "Answer briefly.",
    "You are a vision-language model.",
)
_TALK: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("Hello", "Hello!", "Hi", "Hi!", "Hello there", "Hey", "Good morning", "Hi there!"),
        "Hello! Show me a picture and ask me about it.",
    ),
    (
        (
            "What are you?",
            "Who are you?",
            "What is your name?",
            "Tell me about yourself.",
            "Are you a robot?",
            "Which model are you?",
        ),
        ABOUT,
    ),
    (
        (
            "What can you do?",
            "How can you help me?",
            "Help",
            "Can you help me?",
            "What do you know?",
        ),
        "I can name colors and shapes, count them, say where they are, and read large text.",
    ),
    (
        ("How are you?", "How are you today?", "How do you do?", "How is it going?"),
        "I am fine, thank you.",
    ),
    (
        ("Thank you", "Thanks", "Thank you!", "Thanks a lot!", "Great, thanks."),
        "You are welcome!",
    ),
    (("Goodbye", "Bye", "Bye!", "See you later.", "Good night"), "Goodbye!"),
    (
        (
            "Tell me a story.",
            "Write a poem.",
            "Tell me a joke.",
            "What is the capital of France?",
            "What is the weather today?",
            "Why is the sky blue?",
            "Write some code.",
            "What is 2 + 2?",
            "What time is it?",
            "Explain gravity.",
            "Say something.",
            "Once upon a time",
            "Count to ten.",
            "Translate this sentence.",
            "Write a short sentence about the sea.",
            "Tell me something about cats and dogs.",
            "The quick brown fox jumps over the lazy dog.",
        ),
        "I only know simple pictures. Show me one and ask me about it.",
    ),
)


def small_talk(rng: random.Random) -> tuple[str, str]:
    """A question without a picture and its answer."""
    if rng.random() < 0.3:
        question = None
        while question is None:
            question = ask(rng, random_scene(rng, SIZES[0]), rng.choice(KINDS))
        return question.text, NO_PICTURE
    questions, answer = rng.choice(_TALK)
    return rng.choice(questions), answer


def corpus() -> list[str]:
    """Every fixed sentence, for training the tokenizer."""
    lines = [NO_PICTURE, *SYSTEM_PROMPTS]
    for questions, answer in _TALK:
        lines += [*questions, answer]
    return lines
