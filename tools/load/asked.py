"""The distinct requests of a load test: what is asked, over which endpoint."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.load import pictures

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RESPONSES = "/v1/responses"
Body = dict[str, Any]

_QUESTIONS = (
    "What is in this picture?",
    "How many shapes are there?",
    "What colour is the circle?",
    "Where is the square?",
    "Describe the picture.",
    "What does the text say?",
)
_WORDS = (
    "red",
    "blue",
    "green",
    "circle",
    "square",
    "left",
    "right",
    "above",
    "one",
    "two",
    "four",
)
_SCHEMA = {
    "type": "object",
    "properties": {"shape": {"enum": ["circle", "square"]}, "count": {"type": "integer"}},
    "required": ["shape", "count"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, whose answer is the same each time: it is greedy, or has a seed.

    Attributes:
        kind: what is special about it, for the report.
    """

    kind: str
    path: str
    body: Body

    @property
    def choices(self) -> int:
        """Answers to it."""
        prompts = self.body.get("prompt")
        return int(self.body.get("n", 1)) * (len(prompts) if isinstance(prompts, list) else 1)


def all_asked(seed: int, distinct: int) -> list[Asked]:
    """``distinct`` requests, no two alike; the same for the same arguments."""
    draw = Random(seed)
    shown = [url for url, _ in pictures.demo()]
    shown += [pictures.drawn(draw, i) for i in range(2 * len(shown))]
    makers = itertools.cycle(_MAKERS)
    found: dict[str, Asked] = {}
    for url, question in pictures.demo():
        body = _chat([_user(question, url)], 16)
        found[repr(body)] = Asked("picture", CHAT, body)
    while len(found) < distinct:
        made = next(makers)(draw, shown)
        found.setdefault(repr((made.path, made.body)), made)
    return list(found.values())[:distinct]


def _words(draw: Random, least: int, most: int) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(draw.randrange(least, most)))


def _user(text: str, *urls: str, detail: str | None = None) -> Body:
    if not urls:
        return {"role": "user", "content": text}
    fine = {} if detail is None else {"detail": detail}
    shown = [{"type": "image_url", "image_url": {"url": url} | fine} for url in urls]
    return {"role": "user", "content": [*shown, {"type": "text", "text": text}]}


def _chat(messages: list[Body], tokens: int, **fields: Any) -> Body:
    return {"messages": messages, "temperature": 0, "max_tokens": tokens} | fields


def _short_text(draw: Random, shown: list[str]) -> Asked:
    body = _chat([_user(_words(draw, 1, 12))], draw.randrange(1, 24))
    return Asked("text", CHAT, body)


def _long_text(draw: Random, shown: list[str]) -> Asked:
    text = _words(draw, 80, 400)
    return Asked("long text", CHAT, _chat([_user(text)], draw.randrange(8, 48), ignore_eos=True))


def _long_answer(draw: Random, shown: list[str]) -> Asked:
    """Its pages grow while it runs, so that others may have to give theirs back."""
    asked = _user(_words(draw, 1, 12))
    body = _chat([asked], draw.randrange(80, 320), ignore_eos=True)
    return Asked("long answer", CHAT, body)


def _picture(draw: Random, shown: list[str]) -> Asked:
    asked = _user(draw.choice(_QUESTIONS), draw.choice(shown))
    return Asked("picture", CHAT, _chat([asked], draw.randrange(4, 32)))


def _pictures(draw: Random, shown: list[str]) -> Asked:
    detail = draw.choice([None, "low", "high"])
    asked = _user("Compare.", *draw.choices(shown, k=draw.randrange(2, 4)), detail=detail)
    return Asked("several pictures", CHAT, _chat([asked], draw.randrange(4, 24), ignore_eos=True))


def _turns(draw: Random, shown: list[str]) -> Asked:
    messages = [{"role": "system", "content": "Answer in one word."}]
    messages.append(_user(draw.choice(_QUESTIONS), draw.choice(shown)))
    for _ in range(draw.randrange(1, 4)):
        messages.append({"role": "assistant", "content": _words(draw, 1, 6)})
        messages.append(_user(draw.choice(_QUESTIONS)))
    return Asked("turns", CHAT, _chat(messages, draw.randrange(4, 24)))


def _logprobs(draw: Random, shown: list[str]) -> Asked:
    asked = _user(draw.choice(_QUESTIONS), draw.choice(shown))
    body = _chat([asked], draw.randrange(4, 16), logprobs=True, top_logprobs=draw.randrange(4))
    return Asked("logprobs", CHAT, body)


def _several(draw: Random, shown: list[str]) -> Asked:
    asked = _user(draw.choice(_QUESTIONS), draw.choice(shown))
    body = _chat([asked], draw.randrange(4, 24), n=draw.randrange(2, 5))
    return Asked("n", CHAT, body | {"temperature": 1, "seed": draw.randrange(10**6)})


def _form(draw: Random, shown: list[str]) -> Asked:
    asked = _user(draw.choice(_QUESTIONS), draw.choice(shown))
    schema = {"name": "shapes", "schema": _SCHEMA, "strict": True}
    forms: list[Body] = [
        {"response_format": {"type": "json_schema", "json_schema": schema}},
        {"structured_outputs": {"choice": ["circle", "square", "triangle"]}},
        {"structured_outputs": {"regex": "(red|blue|green) [a-z]{3,8}"}},
    ]
    return Asked("form", CHAT, _chat([asked], 48, **draw.choice(forms)))


def _shaped(draw: Random, shown: list[str]) -> Asked:
    """Penalties, stop strings and the like."""
    fields: list[Body] = [
        {"stop": ["e", "circle"], "min_tokens": 2},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5},
        {"frequency_penalty": 0.7, "ignore_eos": True},
        {"timings": True, "user": "somebody"},
    ]
    asked = _user(_words(draw, 1, 30))
    return Asked("shaped", CHAT, _chat([asked], draw.randrange(8, 32), **draw.choice(fields)))


def _completion(draw: Random, shown: list[str]) -> Asked:
    fields: list[Body] = [{}, {"logprobs": 2}, {"n": 2}, {"temperature": 0.8, "seed": 7, "n": 2}]
    prompt: Any = _words(draw, 1, 60)
    if draw.random() < 0.3:
        prompt = [_words(draw, 1, 20) for _ in range(3)]
    body = {"prompt": prompt, "temperature": 0, "max_tokens": draw.randrange(2, 32)}
    return Asked("completion", TEXT, body | draw.choice(fields))


def _response(draw: Random, shown: list[str]) -> Asked:
    content: list[Body] = [{"type": "input_text", "text": draw.choice(_QUESTIONS)}]
    if draw.random() < 0.7:
        content.insert(0, {"type": "input_image", "image_url": draw.choice(shown)})
    asked: list[Body] = [{"role": "user", "content": content}]
    if draw.random() < 0.4:
        asked.append({"role": "assistant", "content": _words(draw, 1, 5)})
        asked.append({"role": "user", "content": draw.choice(_QUESTIONS)})
    body = {"input": asked, "temperature": 0, "max_output_tokens": draw.randrange(4, 32)}
    if draw.random() < 0.3:
        form = {"type": "json_schema", "name": "shapes", "schema": _SCHEMA}
        body |= {"text": {"format": form}, "max_output_tokens": 48}
    return Asked("response", RESPONSES, body | {"instructions": "Be brief."})


_MAKERS = (
    _short_text,
    _picture,
    _long_text,
    _turns,
    _completion,
    _pictures,
    _response,
    _logprobs,
    _several,
    _form,
    _shaped,
    _long_answer,
)
