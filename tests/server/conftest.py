"""One engine and one server for all tests of the endpoints; tests that change settings start their
own server around the same engine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import openai
import pytest

from firstlight.engine.build import Parts
from tests.conftest import TinyCheckpoint
from tests.server.running import Running, running, tiny_parts


@pytest.fixture(scope="session")
def parts(tiny_checkpoint: TinyCheckpoint) -> Iterator[Parts]:
    """A tiny Qwen3-VL with few graphs."""
    parts = tiny_parts(tiny_checkpoint("qwen3_vl"))
    yield parts
    assert parts.pipeline is not None
    parts.pipeline.close()


@pytest.fixture(scope="session")
def server(parts: Parts) -> Iterator[Running]:
    """A server of default settings."""
    with running(parts) as server:
        yield server


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    """A plain client; afterwards nothing of any request is left."""
    with server.client() as client:
        yield client
    assert server.idle()


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    """OpenAI's client, which tries nothing twice; afterwards nothing of any request is left."""
    with (
        httpx2.Client(verify=False) as own,
        openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=own
        ) as client,
    ):
        yield client
    assert server.idle()
