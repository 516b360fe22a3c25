"""``/v1/responses``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from firstlight.errors import RequestError
from firstlight.server.answers import answer_whole
from firstlight.server.parsing import JsonRoute
from firstlight.server.responses_answer import ResponseEvents, ResponsesAnswer
from firstlight.server.responses_input import AnsweredInput, ChatOfInput
from firstlight.server.schemas.messages import as_dicts
from firstlight.server.schemas.responses import ResponsesRequest
from firstlight.server.service import Service
from firstlight.server.timings import wants_timings


def responses_routes(service: Service) -> APIRouter:
    """The route of responses, which are chats in another form."""
    router = APIRouter(route_class=JsonRoute, tags=["generate"])

    @router.post("/v1/responses", summary="Answer in the form of responses")
    async def responses(body: ResponsesRequest, request: Request) -> Response:
        model = service.name_for(body.model)
        chat = ChatOfInput(body)
        try:
            form = service.forms.chat(chat.request)
            params = form.params(chat.request.params())
        except RequestError as error:
            raise chat.error(error) from error
        stream = service.engine.chat(
            as_dicts(chat.request.messages),
            params,
            options=form.options,
            request_id=request.state.request_id,
        )
        answered = AnsweredInput(service, stream, 1, request.state.facts)
        answered.chat = chat
        timed = wants_timings(body.timings, request.headers)
        answer = ResponsesAnswer(body, answered, form, service.tokens, model, timed)
        if body.stream:
            return ResponseEvents(answer.chunks(), answered.server_timing)
        return await answer_whole(request, [answered], answer.whole)

    return router
