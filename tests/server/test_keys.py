"""Keys on every route, and nothing secret in logs, errors or metrics (case H43)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from firstlight.config import api_keys_from
from firstlight.engine.build import Parts
from firstlight.errors import ConfigError
from firstlight.server.app import build_app
from firstlight.server.gate import KeyCheck
from firstlight.server.keys import KeyRing, read_keys
from firstlight.server.logs import JsonLines
from firstlight.server.serve import key_ring, open_service
from firstlight.server.settings import ServerSettings
from tests.server.asking import CHAT, body, data_url
from tests.server.running import KEYS, Running, running

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FROB")
REQUEST = '"event": "request"'
DECLARED = {CHAT, "/v1/completions", "/v1/models", "/tokenize", "/metrics", "/v1/graphs"}
WRONG: tuple[dict[str, str], ...] = (
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": f"Bearer {KEYS[0][:-1]}"},
    {"authorization": f"Bearer {KEYS[0]}x"},
    {"authorization": "Bearer"},
    {"authorization": f"Basic {KEYS[0]}"},
    {"authorization": KEYS[0]},
    {"x-api-key": KEYS[0]},
)


@pytest.fixture(scope="module")
def locked(parts: Parts) -> Iterator[Running]:
    """A server with two keys."""
    with running(parts, keys=KEYS) as server:
        yield server


def paths(app: FastAPI) -> set[str]:
    """All that is declared, in other spellings as well, and some that are not."""
    declared = set(app.openapi()["paths"]) | {"/openapi.json", "/docs"}
    found = set()
    for path in declared - {"/health"}:
        path = path.replace("{name}", "qwen3_vl")
        found |= {path, path + "/", "/" + path, path.upper(), "/" + path[1:].replace("/", "%2f")}
        found |= {path.removeprefix("/v1"), path + "?api_key=" + KEYS[0], "/health/.." + path}
    found |= {"/health/", "//health", "/HEALTH", "/health%2f", "/healthz", "/v1/health"}
    found |= {"//", "/playground", "/playground/", "/PLAYGROUND/app.js"}
    return found - {"", "/health"}


def test_no_route_answers_without_a_key(parts: Parts) -> None:
    """H43"""
    app = build_app(open_service(parts, ServerSettings()), KeyRing(KEYS))
    inner = app
    while not isinstance(inner, FastAPI):
        inner = inner._app  # type: ignore[attr-defined]
    asked: list[tuple[str, str, dict[str, str]]] = [
        (method, path, {})
        for path in sorted(paths(inner))
        for method in (METHODS if path in DECLARED else ("GET", "POST"))
    ]
    asked += [("GET", path, wrong) for wrong in WRONG for path in sorted(DECLARED)]
    assert len(asked) > 200

    async def ask() -> None:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://a") as http:
            for method, path, headers in asked:
                answer = await http.request(method, f"http://a{path}", headers=headers)
                assert answer.status_code == 401, (method, path, headers)

    asyncio.run(ask())


def test_each_key_opens_and_health_needs_none(locked: Running) -> None:
    with locked.client() as http:
        for key in KEYS:
            headers = {"authorization": f"Bearer {key}"}
            assert http.post(CHAT, json=body(), headers=headers).status_code == 200
        assert http.get("/health").status_code == 200


def test_a_websocket_is_turned_away(parts: Parts) -> None:
    client = TestClient(build_app(open_service(parts, ServerSettings()), KeyRing(KEYS)))
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("/v1/models", headers=headers),
    ):
        pass


@pytest.mark.parametrize(
    "values",
    [[], [b"Bearer "], [b"Bearer"], [b"Bearer a b"], [b"Bearer good", b"Bearer good"], [b"\xff"]],
)
def test_a_header_that_is_no_single_key_opens_nothing(values: list[bytes]) -> None:
    """Also such as no client library sends."""
    sent: list[Message] = []

    async def unreachable(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"authorization", value) for value in values]
    scope = {"type": "http", "path": "/v1/models", "headers": headers}
    asyncio.run(KeyCheck(unreachable, KeyRing(["good"]))(scope, receive, send))
    assert sent[0]["status"] == 401


def own_lines(log: str) -> int:
    """Lines of requests that are called as those of the test below."""
    return sum(REQUEST in line and "own-request" in line for line in log.splitlines())


def test_nothing_secret_is_in_logs_errors_or_metrics(locked: Running) -> None:
    """H43: keys, prompts, and the queries of addresses."""
    log = StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("firstlight")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    # Lines of requests that others sent may still come: only those of this test count.
    mine = {"x-request-id": "own-request"}
    secret = "https://pictures.example/a.png?token=querysecret"
    texts = []
    try:
        with locked.client(headers=mine | {"authorization": f"Bearer {KEYS[0]}"}) as http:
            texts.append(http.post(CHAT, json=body("promptsecret")).headers.__repr__())
            bad = body() | {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": secret}}],
                    }
                ]
            }
            texts.append(http.post(CHAT, json=bad).text)
            texts.append(http.post(CHAT + "?key=querysecret", json=body(data_url())).text)
            texts.append(http.get("/querysecret").text)
            texts.append(http.get("/metrics").text)
            texts.append(http.get("/v1/models/querysecret", headers={}).text.replace("'", ""))
        with locked.client(headers=mine) as http:
            texts.append(http.get("/version", headers={"authorization": "Bearer keysecret"}).text)
        until = time.monotonic() + 5
        while own_lines(log.getvalue()) < 7 and time.monotonic() < until:
            time.sleep(0.005)  # a request is logged behind its answer
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    lines = log.getvalue()
    assert own_lines(lines) == 7
    for text in (lines, *texts[:-2], texts[-1]):
        for word in (*KEYS, "promptsecret", "querysecret", "keysecret"):
            assert word not in text


def test_keys_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the team\nalpha\n\n  beta  \n")
    ring = key_ring(ServerSettings(api_key_file=path), {"FIRSTLIGHT_API_KEY": "gamma, delta,alpha"})
    assert len(ring) == 4
    assert all(ring.opens(key) for key in ("alpha", "beta", "gamma", "delta"))
    assert not any(
        ring.opens(key) for key in ("", "# of the team", "alph", "alphaa", "é", "\ud800")
    )


def test_a_key_file_that_is_empty_or_missing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none\n")
    for name in ("empty", "missing"):
        with pytest.raises(ConfigError, match="api_key_file"):
            read_keys(tmp_path / name)


def test_without_a_variable_there_is_no_key() -> None:
    assert api_keys_from({}) == ()
    assert api_keys_from({"FIRSTLIGHT_API_KEY": " , "}) == ()


def test_pages_of_other_origins_are_refused_unless_allowed(parts: Parts) -> None:
    origin = {"origin": "https://a.example"}
    asked = origin | {"access-control-request-method": "POST"}
    with running(parts) as server, server.client() as http:
        assert "access-control-allow-origin" not in http.get("/version", headers=origin).headers
        assert http.options(CHAT, headers=asked).status_code == 405
    with running(parts, cors_origins=("https://a.example",)) as server, server.client() as http:
        answer = http.options(CHAT, headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = http.options(CHAT, headers=asked | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers
    assert isinstance(answer, httpx2.Response)
