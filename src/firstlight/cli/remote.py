"""A server of OpenAI's API as somebody to talk with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import httpx2

from firstlight.cli.remote_answer import RemoteAnswer
from firstlight.cli.remote_messages import as_sent
from firstlight.cli.session import Message
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.errors import ConfigError, RequestError

_CONNECT_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 600.0
"""The longest wait for more of an answer: a long prompt on a busy server may take minutes."""
_UNLESS_SAID: Final[Mapping[str, object]] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
}
"""What is sent only where it was asked for, since not every server knows every field."""


class RemoteModel:
    """A model behind a server.

    Args:
        url: the server's address, with or without ``/v1``.
        model: a name that it knows; None for its first.
        api_key: its key, or None.

    Raises:
        ConfigError: no such address, nobody answers there, or the key is not accepted.
    """

    def __init__(self, url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        self.url = _base(url)
        headers = {"x-firstlight-timings": "1"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        timeout = httpx2.Timeout(_WAIT_SECONDS, connect=_CONNECT_SECONDS)
        self._client = httpx2.Client(base_url=self.url, headers=headers, timeout=timeout)
        try:
            names = self._names()
            if model is None and not names:
                raise ConfigError(f"--server = {url!r} names no model; give one as MODEL")
        except ConfigError:
            self.close()
            raise
        self.name = names[0] if model is None else model

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams,
        *,
        mm_processor_kwargs: Mapping[str, object] | None = None,
    ) -> Iterator[str | Completion]:
        """The answer as it comes, then what is known of it; see :meth:`firstlight.LLM.stream_chat`.

        Raises:
            RequestError: the server refuses the request, or the connection breaks.
            MediaError: a file that was attached cannot be read.
        """
        body = _body(self.name, messages, sampling_params, mm_processor_kwargs)
        answer = RemoteAnswer(time.perf_counter)
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise RequestError(_refusal(response))
                yield from answer.read(response.iter_lines())
        except httpx2.HTTPError as error:
            raise RequestError(f"the server at {self.url} broke off: {_reason(error)}") from error
        yield answer.completion()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _names(self) -> list[str]:
        """The names of the server's models."""
        try:
            response = self._client.get("/v1/models")
        except httpx2.HTTPError as error:
            reason = _reason(error)
            raise ConfigError(f"--server: nobody answers at {self.url}: {reason}") from error
        if response.status_code in (401, 403):
            raise ConfigError(
                f"--server: {self.url} does not know the key: {_refusal(response)}; give one as "
                "FIRSTLIGHT_API_KEY or --api-key"
            )
        if response.status_code != 200:
            raise ConfigError(f"--server: {self.url}/v1/models: {_refusal(response)}")
        try:
            return [str(model["id"]) for model in response.json()["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"--server: {self.url} does not speak OpenAI's API") from error


def _base(url: str) -> str:
    """The address without a path of its API; http where it names no scheme."""
    text = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    text = text if "://" in text else f"http://{text}"
    try:
        parsed = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"--server = {url!r:.80}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"--server = {url!r:.80}; accepted: as http://127.0.0.1:8000")
    return text


def _body(
    model: str,
    messages: Sequence[Message],
    params: SamplingParams,
    kwargs: Mapping[str, object] | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [as_sent(message) for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
    }
    for name, usual in _UNLESS_SAID.items():
        if getattr(params, name) != usual:
            body[name] = getattr(params, name)
    if params.stop:
        body["stop"] = list(params.stop)
    if kwargs:
        body["mm_processor_kwargs"] = dict(kwargs)
    return body


def _refusal(response: httpx2.Response) -> str:
    """What the server says of a request that it did not serve."""
    try:
        said = response.json()["error"]
        message = said["message"] if isinstance(said, Mapping) else said
    except (ValueError, KeyError, TypeError):
        message = response.text.strip()[:200] or "without a word"
    return f"{message} (status {response.status_code})"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def one_key(text: str | None) -> str | None:
    """The first of several keys with commas between them, as the server's variable has them."""
    keys = [key.strip() for key in (text or "").split(",")]
    return next((key for key in keys if key), None)
