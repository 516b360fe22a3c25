"""The server that is measured: what it says about itself, and how its tokenizer counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from firstlight.bench.ask import PATH
from firstlight.bench.words import WORDS, Texts, sample
from firstlight.errors import ConfigError


def open_client(url: str, key: str | None, timeout: float, most: int) -> httpx2.AsyncClient:
    """A client of a server; requests go there directly, whatever proxies the environment names.

    Args:
        url: with or without ``/v1`` at its end.
        key: of the API.
        timeout: seconds that one wait may take.
        most: connections.
    """
    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--server = {url!r}; accepted: an address with http:// or https://")
    return httpx2.AsyncClient(
        base_url=base,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx2.Timeout(timeout, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=most),
        trust_env=False,
        # Certificates are loaded only where they are read.
        verify=base.startswith("https://"),
    )


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and a model of it.

    Attributes:
        graphs: firstlight's report of ``/v1/graphs``; None from another server.
        version: of firstlight; empty from another server.
    """

    client: httpx2.AsyncClient
    model: str
    graphs: dict[str, Any] | None
    version: str = ""

    @classmethod
    async def find(cls, client: httpx2.AsyncClient, model: str | None) -> Target:
        """Ask a server what it is.

        Args:
            model: None is the first that it lists.

        Raises:
            ConfigError: it cannot be reached, or lists no model.
        """
        if model is None:
            models = (await _get(client, "/v1/models")).get("data") or []
            if not models or not isinstance(models[0].get("id"), str):
                raise ConfigError(f"{client.base_url} lists no models; name one with --model")
            model = models[0]["id"]
        graphs = await graphs_of(client)
        version = await _try(client, "/version") if graphs is not None else None
        return cls(client, model, graphs, str((version or {}).get("version", "")))

    @property
    def is_firstlight(self) -> bool:
        """Whether it tells more than the others."""
        return self.graphs is not None

    async def texts(self) -> Texts:
        """How many tokens a word has: one short prompt and one longer, counted by the server.

        Raises:
            ConfigError: it does not answer, or does not count.
        """
        short, long = [await self._count(sample(n)) for n in (1, 2)]
        if long <= short:
            raise ConfigError(
                f"the server counts {short} tokens for {len(WORDS)} words and {long} for twice as "
                "many; without usage.prompt_tokens no text of a wanted length can be made"
            )
        return Texts((long - short) / len(WORDS))

    async def _count(self, text: str) -> int:
        messages = [{"role": "user", "content": text}]
        asked = {"model": self.model, "messages": messages, "max_tokens": 1, "temperature": 0}
        try:
            response = await self.client.post(PATH, json=asked)
        except httpx2.HTTPError as error:
            raise _unreachable(self.client, error) from error
        if response.status_code != 200:
            raise ConfigError(
                f"{self.client.base_url} refuses a plain question to {self.model!r} with "
                f"{response.status_code}: {_said(response)}"
            )
        try:
            return int(response.json()["usage"]["prompt_tokens"])
        except (ValueError, KeyError, TypeError):
            return 0


async def graphs_of(client: httpx2.AsyncClient) -> dict[str, Any] | None:
    """The report of ``/v1/graphs``; None from a server that has none."""
    report = await _try(client, "/v1/graphs")
    return report if report and isinstance(report.get("coverage"), dict) else None


async def _try(client: httpx2.AsyncClient, path: str) -> dict[str, Any] | None:
    try:
        response = await client.get(path)
        value = response.json() if response.status_code == 200 else None
    except (httpx2.HTTPError, ValueError):
        return None
    return value if isinstance(value, dict) else None


async def _get(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    try:
        response = await client.get(path)
    except httpx2.HTTPError as error:
        raise _unreachable(client, error) from error
    if response.status_code != 200:
        raise ConfigError(
            f"{client.base_url} answers {path} with {response.status_code}: {_said(response)}"
        )
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{client.base_url} answers {path} with what is no JSON object")
    return value


def _unreachable(client: httpx2.AsyncClient, error: Exception) -> ConfigError:
    why = str(error) or type(error).__name__
    return ConfigError(f"--server = {str(client.base_url)!r} cannot be asked: {why}")


def _said(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return response.text[:300]
