"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from firstlight.server.answers import Answered, answer_whole
from firstlight.server.chat_answer import ChatAnswer
from firstlight.server.completion_answer import CompletionAnswer
from firstlight.server.parsing import JsonRoute
from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.schemas.completion import CompletionRequest
from firstlight.server.schemas.messages import as_dicts
from firstlight.server.service import Service
from firstlight.server.sse import EventStream
from firstlight.server.timings import wants_timings


def generate_routes(service: Service) -> APIRouter:
    """The routes that generate."""
    router = APIRouter(route_class=JsonRoute, tags=["generate"])

    @router.post("/v1/chat/completions", summary="Answer a conversation")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        model = service.name_for(body.model)
        form = service.forms.chat(body)
        stream = service.engine.chat(
            as_dicts(body.messages),
            form.params(body.params()),
            n=body.choices,
            mm_processor_kwargs=body.mm_processor_kwargs,
            options=form.options,
            request_id=request.state.request_id,
        )
        answered = Answered(service, stream, body.choices, request.state.facts)
        timed = wants_timings(body.timings, request.headers)
        answer = ChatAnswer(body, answered, service.tokens, form, model, timed)
        if body.stream:
            return EventStream(answer.chunks(), answered.server_timing)
        return await answer_whole(request, [answered], answer.whole)

    @router.post("/v1/completions", summary="Go on with a text")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        model = service.name_for(body.model)
        params = body.params()
        all_answered = [
            Answered(
                service,
                service.engine.text(
                    prompt, params, n=body.choices, request_id=request.state.request_id
                ),
                body.choices,
                request.state.facts,
            )
            for prompt in body.prompts
        ]
        timed = wants_timings(body.timings, request.headers)
        echoes = [_text(service, prompt) if body.echo else "" for prompt in body.prompts]
        answer = CompletionAnswer(body, all_answered, echoes, service.tokens, model, timed)
        if body.stream:
            return EventStream(answer.chunks(), all_answered[0].server_timing)
        return await answer_whole(request, all_answered, answer.whole)

    return router


def _text(service: Service, prompt: str | list[int]) -> str:
    """A prompt as text."""
    if isinstance(prompt, str):
        return prompt
    service.check_token_ids(prompt, "prompt")
    return service.tokens.join(prompt)
