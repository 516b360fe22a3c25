"""schemathesis makes requests from ``/openapi.json`` and looks for faults and for what the schema
does not say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.environments import run
from tests.clients.serving import Served, served

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)
"""All that concern a server without accounts but ``positive_data_acceptance``: a schema cannot say
which models, tools and tokens there are, nor which fields contradict each other."""


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Served]:
    """The bundled model with a small context: many requests set no limit to their answers."""
    options = ("--max-context", "128", "--buckets", "64,128", "--max-num-seqs", "4")
    with served(tmp_path, *options) as server:
        yield server
        assert server.faults() == []


def test_no_request_is_a_server_error_or_has_an_answer_that_is_not_documented(
    short: Served, tmp_path: Path
) -> None:
    command = ["schemathesis", "run", f"{short.url}/openapi.json", "--checks", ",".join(CHECKS)]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "1"]
    command += ["--continue-on-failure", "--no-shrink", "--suppress-health-check", "all"]
    done = run("schemathesis", command, cwd=tmp_path, seconds=900)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    cases = re.search(r"([\d,]+) generated", done.stdout)
    assert cases is not None, done.stdout
    assert int(cases[1].replace(",", "")) > 1000
