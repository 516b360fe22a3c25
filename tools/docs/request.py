"""Tables of what the server's requests may hold, and of its metrics, from its models."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel
from tools.docs.markdown import table

Row = tuple[str, str, str]


def chat() -> str:
    """The fields of a chat request."""
    from firstlight.server.schemas.chat import ChatRequest

    return _fields(ChatRequest)


def completions() -> str:
    """The fields of a text completion's request."""
    from firstlight.server.schemas.completion import CompletionRequest

    return _fields(CompletionRequest)


def responses() -> str:
    """The fields of a request of responses."""
    from firstlight.server.schemas.responses import ResponsesRequest

    return _fields(ResponsesRequest)


def tokenize() -> str:
    """The fields of a request for the tokens of a prompt."""
    from firstlight.server.schemas.tokens import TokenizeRequest

    return _fields(TokenizeRequest)


def detokenize() -> str:
    """The fields of a request for the text of tokens."""
    from firstlight.server.schemas.tokens import DetokenizeRequest

    return _fields(DetokenizeRequest)


def metrics() -> str:
    """Every metric of the server, by the part that it is about."""
    from firstlight.server.metric_specs import GROUPS

    sections = []
    for group, specs in GROUPS.items():
        rows = [
            (f"`{s.exported}`", s.kind.value, ", ".join(f"`{n}`" for n in s.labels), s.text)
            for s in specs
        ]
        made = table(("metric", "kind", "labels", "meaning"), rows)
        sections.append(f"### {group}\n\n{made}")
    return "\n\n".join(sections)


def _fields(model: type[BaseModel]) -> str:
    """What is served, then what is accepted without effect, then what is refused."""
    from firstlight.server.schemas.described import described
    from firstlight.server.schemas.fields import IGNORED, refusal_of

    root = model.model_json_schema()
    # Null, which every optional field takes, is left out.
    accepted = {
        name: described(schema, root, null=False) or "any"
        for name, schema in root["properties"].items()
    }
    served: list[Row] = []
    ignored: list[Row] = []
    refused: list[Row] = []
    for name, field in model.model_fields.items():
        refusal = refusal_of(field)
        text = field.description or ""
        if refusal is not None:
            why, neutral = refusal
            refused.append((f"`{name}`", _values(neutral), f"Anything else is refused: {why}."))
        elif text.startswith(IGNORED):
            ignored.append((f"`{name}`", accepted[name], text))
        else:
            served.append((f"`{name}`", accepted[name], text))
    return table(("field", "accepted", "meaning"), [*served, *ignored, *refused])


def _values(values: Iterable[object]) -> str:
    return ", ".join("null" if v is None else f"`{json.dumps(v)}`" for v in values)
