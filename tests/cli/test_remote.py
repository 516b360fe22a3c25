"""Talking with a server that is not ours, on a socket."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from firstlight.cli.main import main
from firstlight.cli.remote import RemoteModel, one_key
from firstlight.core.output import Completion, FinishReason
from firstlight.core.sampling_params import SamplingParams
from firstlight.errors import ConfigError, MediaError, RequestError

Capsys = pytest.CaptureFixture[str]
MODELS = {"data": [{"id": "first"}, {"id": "second"}]}


def chunk(**delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


END: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
USAGE: dict[str, Any] = {
    "choices": [],
    "usage": {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 3},
    },
}


class Scripted(ThreadingHTTPServer):
    """Answers with what it is given, and keeps what it was asked."""

    def __init__(self, events: list[Any], status: int, models: Any) -> None:
        self.events, self.status, self.models = events, status, models
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200 if self.server.models else 401, json.dumps(self.server.models or {}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append(json.loads(body))
        self.server.keys.append(self.headers["authorization"])
        events = self.server.events
        if self.server.status != 200:
            self._send(self.server.status, json.dumps(events[0]))
            return
        texts = [e if isinstance(e, str) else json.dumps(e) for e in events]
        self._send(200, "".join(f"data: {text}\n\n" for text in texts))

    def _send(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def scripted(*events: Any, status: int = 200, models: Any = MODELS) -> Iterator[Scripted]:
    server = Scripted(list(events), status, models)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(model: RemoteModel, content: Any = "hi", **params: Any) -> tuple[str, Completion]:
    messages = [{"role": "user", "content": content}]
    pieces = list(model.stream_chat(messages, SamplingParams(**params)))
    model.close()
    completion = pieces.pop()
    assert isinstance(completion, Completion)
    return "".join(str(piece) for piece in pieces), completion


def test_an_answer_is_streamed_and_counted() -> None:
    with scripted(
        chunk(role="assistant", content=""),
        chunk(content="bl"),
        chunk(content="ue"),
        END,
        USAGE,
        "[DONE]",
    ) as server:
        text, completion = ask(RemoteModel(server.url))
    assert text == completion.text == "blue"
    assert completion.finish_reason is FinishReason.LENGTH
    assert (completion.usage.prompt_tokens, completion.usage.cached_tokens) == (7, 3)
    assert 0 < completion.timings.ttft_s <= completion.timings.total_s


def test_thoughts_stand_between_their_marks() -> None:
    with scripted(
        chunk(reasoning_content="a"), chunk(reasoning_content="b"), chunk(content="c"), END
    ) as server:
        assert ask(RemoteModel(server.url))[0] == "<think>ab</think>c"


def test_what_is_asked_is_what_was_said_and_no_more(tmp_path: Path) -> None:
    picture, film = tmp_path / "a.jpg", tmp_path / "a.mp4"
    picture.write_bytes(b"jpeg")
    film.write_bytes(b"film")
    content = [
        {"type": "image", "image": str(picture), "detail": "low"},
        {"type": "image", "image": "https://example.org/a.png"},
        {"type": "video", "video": str(film)},
        {"type": "text", "text": "what?"},
    ]
    with scripted(chunk(content="x"), END) as server:
        ask(RemoteModel(server.url, api_key="key"), content, temperature=0, max_tokens=5)
        ask(RemoteModel(server.url, model="second"), top_k=3, seed=1, stop=("END",))
        first, second = server.asked
        assert server.keys == ["Bearer key", None]
    assert first == {
        "model": "first",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": _url("image/jpeg", b"jpeg"), "detail": "low"},
                    },
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "video_url", "video_url": {"url": _url("video/mp4", b"film")}},
                    {"type": "text", "text": "what?"},
                ],
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 5,
    }
    assert second["model"] == "second"
    assert (second["top_k"], second["seed"], second["stop"]) == (3, 1, ["END"])


def _url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize(
    ("events", "status", "message"),
    [
        ([{"error": {"message": "too long"}}], 400, r"too long \(status 400\)"),
        (["no json of ours"], 500, r"status 500"),
        ([chunk(content="a"), {"error": {"message": "the engine failed"}}], 200, "engine failed"),
        ([chunk(content="a")], 200, "before it was complete"),
        (["{"], 200, "no JSON object"),
    ],
)
def test_what_a_server_refuses_or_breaks_off_is_an_error(
    events: list[Any], status: int, message: str
) -> None:
    with (
        scripted(*events, status=status) as server,
        pytest.raises(RequestError, match=message),
    ):
        ask(RemoteModel(server.url))


def test_a_file_that_is_gone_is_an_error_of_its_question() -> None:
    content = [{"type": "image", "image": "none.png"}]
    with scripted() as server, pytest.raises(MediaError, match=r"none\.png cannot be read"):
        ask(RemoteModel(server.url), content)


def test_nobody_there_is_told_with_the_address() -> None:
    with scripted() as server:
        url = server.url
    with pytest.raises(ConfigError, match=f"nobody answers at {url}"):
        RemoteModel(url)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--server"):
        RemoteModel(url)


@pytest.mark.parametrize(
    ("models", "message"),
    [(None, "does not know the key"), ({"data": []}, "names no model"), ([1], "does not speak")],
)
def test_a_server_that_does_not_tell_its_models_is_refused(models: Any, message: str) -> None:
    with scripted(models=models) as server, pytest.raises(ConfigError, match=message):
        RemoteModel(server.url)


def test_of_several_keys_the_first_is_ours() -> None:
    assert [one_key(text) for text in (None, " , ", " a ,b")] == [None, None, "a"]


def test_a_conversation_goes_on_after_an_error(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted({"error": {"message": "no"}}) as server:
        monkeypatch.setattr("sys.stdin", io.StringIO("one?\ntwo?\n"))
        assert main(["chat", "--server", server.url.removeprefix("http://")]) == 0
        assert len(server.asked) == 2
    assert capsys.readouterr().err.count("error: no") == 2


def test_settings_of_a_model_here_do_not_go_with_a_server(capsys: Capsys) -> None:
    assert main(["chat", "--server", "http://127.0.0.1:1", "--dtype", "float32"]) == 2
    assert "--dtype is about a model here; --server has loaded its own" in capsys.readouterr().err
