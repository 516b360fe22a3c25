"""langchain's standard tests of chat models, through langchain-openai."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from firstlight.demo import model_path, pictures
from tests.clients.serving import Served
from tests.clients.suites import run_suite

NEEDS_SENSE = {
    "test_bind_runnables_as_tools": "the model does not end the text that is the argument",
    "test_tool_choice": "the model does not end the text that is the argument",
    "test_structured_output_pydantic_2_v1": "the client asks for any JSON object, without a schema",
    "test_json_mode": "any JSON object is asked for; the bundled model gives it a key of its own",
    "test_agent_loop[model0]": "the model must decide to call; the bundled one answers in words",
    "test_agent_loop[model1]": "the model must decide to call; the bundled one answers in words",
    "test_unicode_tool_call_integration": "the name in the question must be copied; it is not",
}
"""Tests whose outcome is the model's, and what was seen. They fail by what stands in an answer,
never by a refusal."""
SKIPPED = {
    "test_pdf_inputs",
    "test_audio_inputs",
    "test_pdf_tool_message",
    "test_stream_time",
}
"""What the suite leaves out: PDF and audio are not served, and no traffic was recorded."""


def test_langchains_suite_passes_but_for_what_needs_a_larger_model(
    tooled: Served, tmp_path: Path
) -> None:
    picture = next(picture for picture in pictures() if picture.in_distribution)
    token = Tokenizer.from_file(str(model_path() / "tokenizer.json")).token_to_id
    outcomes = run_suite(
        "langchain",
        "langchain_suite.py",
        tmp_path,
        # langchain-openai keeps its connections from one event loop to the next.
        *("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session"),
        *("-o", "asyncio_default_fixture_loop_scope=session"),
        FIRSTLIGHT_URL=tooled.url,
        FIRSTLIGHT_PICTURE=str(picture.path),
        FIRSTLIGHT_BIAS=json.dumps({token('"'): 20, token("}"): 20}),
    )
    assert outcomes.failed.keys() == NEEDS_SENSE.keys()
    for text in outcomes.failed.values():
        assert "openai." not in text.split("\n", 1)[0]  # no refusal
    assert outcomes.skipped.keys() == SKIPPED
    assert len(outcomes.passed) == 39
