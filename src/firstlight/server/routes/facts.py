"""What is asked about the server: models, tokens, version, health, metrics, graphs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from starlette.responses import JSONResponse

from firstlight import __version__
from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.aio import LoopState
from firstlight.server.graphs import graphs_report
from firstlight.server.metrics import CONTENT_TYPE
from firstlight.server.parsing import JsonRoute
from firstlight.server.schemas.messages import as_dicts
from firstlight.server.schemas.tokens import DetokenizeRequest, TokenizeRequest
from firstlight.server.service import Service

_REFRESH_S = 1.0


def facts_routes(service: Service) -> APIRouter:
    """The routes that generate nothing."""
    router = APIRouter(route_class=JsonRoute, tags=["facts"])
    for path, endpoint, summary in (
        ("/v1/models", _models, "The served model by each of its names"),
        ("/v1/models/{name:path}", _model, "One of them"),
        ("/version", _version, "The version of firstlight"),
        ("/health", _health, "200 while requests are served, else 503"),
        ("/metrics", _metrics, "Prometheus metrics"),
        ("/v1/graphs", _graphs, "Captured graphs, what ran from them, and what did not and why"),
    ):
        answer = endpoint(service)
        router.get(path, summary=summary)(answer)
        router.head(path, include_in_schema=False)(answer)  # the same without its body
    router.post("/tokenize", summary="Tokens of a prompt or a conversation")(_tokenize(service))
    router.post("/detokenize", summary="The text of tokens")(_detokenize(service))
    return router


def _models(service: Service) -> Any:
    async def models() -> dict[str, Any]:
        names = service.model.names
        return {"object": "list", "data": [service.model.as_dict(name) for name in names]}

    return models


def _model(service: Service) -> Any:
    async def model(name: str) -> dict[str, Any]:
        return service.model.as_dict(service.name_for(name))

    return model


def _version(service: Service) -> Any:
    async def version() -> dict[str, str]:
        return {"version": __version__}

    return version


def _health(service: Service) -> Any:
    async def health() -> Response:
        status = _status(service)
        loop = service.engine.loop
        body = {
            "status": status,
            "steps": loop.steps,
            "faults": loop.faults,
            "late_graphs": service.parts.late.left,
        }
        return JSONResponse(body, 200 if status == "ok" else 503)

    return health


def _status(service: Service) -> str:
    """``ok``, or the first reason why it is not."""
    engine = service.engine
    loop = engine.loop
    if loop.state is not LoopState.RUNNING or not loop.alive:
        return LoopState.FAILED.value if loop.state is LoopState.RUNNING else loop.state.value
    if engine.draining:
        return "draining"
    since = loop.stepping_since
    if since is not None and engine.clock() - since > service.settings.stall_seconds:
        return "stalled"
    return "ok"


def _metrics(service: Service) -> Any:
    async def metrics() -> Response:
        refresh = service.engine.call(service.engine_metrics.refresh)
        try:
            async with asyncio.timeout(_REFRESH_S):
                await refresh
        except TimeoutError:
            pass  # in a long step; the engine's numbers are those of the last time
        return Response(service.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def _graphs(service: Service) -> Any:
    async def graphs() -> dict[str, Any]:
        return await service.engine.call(partial(graphs_report, service.parts))

    return graphs


def _tokenize(service: Service) -> Any:
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        service.name_for(body.model)
        ids = await service.engine.in_pool(partial(_ids, service, body))
        answer: dict[str, Any] = {
            "count": len(ids),
            "max_model_len": service.model.max_context,
            "tokens": ids,
        }
        if body.return_token_strs:
            answer["token_strs"] = [service.tokens.text(i) for i in ids]
        return answer

    return tokenize


def _ids(service: Service, body: TokenizeRequest) -> list[int]:
    """The prompt that the engine would compute, pictures expanded."""
    admission, params = service.parts.admission, SamplingParams()
    if body.messages is not None:
        draft = admission.read_chat(as_dicts(body.messages), params, options=body.options())
        return admission.whole(draft).prompt.ids
    return admission.text(body.prompt or "", (), params).prompt.ids


def _detokenize(service: Service) -> Any:
    async def detokenize(body: DetokenizeRequest) -> dict[str, str]:
        service.name_for(body.model)
        service.check_token_ids(body.tokens, "tokens")
        return {"prompt": await service.engine.in_pool(partial(service.tokens.join, body.tokens))}

    return detokenize
