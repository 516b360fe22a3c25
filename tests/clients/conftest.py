"""The servers that the clients ask: the bundled model, and its weights under a template with tools.

Every test of this folder has the marker ``clients``: it is run by ``scripts/test --clients`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.demo import model_path
from tests.clients.serving import Served, served
from tests.engine.tools.templates import HERMES, with_template


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """``firstlight serve`` without a word more."""
    with served(tmp_path_factory.mktemp("bundled")) as server:
        yield server


@pytest.fixture(scope="session")
def tooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The bundled weights with a chat template that tells the model of tools: its own has no place
    for them, so that the server refuses them."""
    folder = tmp_path_factory.mktemp("tooled")
    model = with_template(model_path(), folder / "model", HERMES)
    with served(folder, str(model), "--served-model-name", "firstlight-demo") as server:
        yield server


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a client sent, the servers did not fail."""
    yield
    for name in {"bundled", "tooled"} & set(request.fixturenames):
        server: Served = request.getfixturevalue(name)
        assert server.faults() == []
