"""Every request is one line, by its id, in either form."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from firstlight.server.logs import configure, log_event
from tests.server.asking import CHAT, body
from tests.server.running import Running

NAMES = ("firstlight", "uvicorn", "opentelemetry")


@contextmanager
def logged(form: str) -> Iterator[io.StringIO]:
    """What is logged meanwhile; afterwards the loggers are as they were."""
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(log.handlers[:], log.propagate, log.level) for log in loggers]
    stream = io.StringIO()
    configure(form, stream)
    try:
        yield stream
    finally:
        for log, (handlers, propagate, level) in zip(loggers, before, strict=True):
            log.handlers[:], log.propagate, log.level = handlers, propagate, level


def ask(server: Running, name: str) -> None:
    with server.client() as http:
        http.post(CHAT, json=body(tokens=2), headers={"x-request-id": name})
    assert server.idle()


def test_a_request_is_one_object_with_its_id_and_its_numbers(server: Running) -> None:
    with logged("json") as stream:
        ask(server, "order-1")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (line,) = [line for line in lines if line.get("request") == "order-1"]
    assert (line["event"], line["level"], line["route"]) == ("request", "info", CHAT)
    assert (line["method"], line["status"], line["completion_tokens"]) == ("POST", 200, 2)
    assert 0 <= line["ttft_s"] <= line["seconds"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert "trace" not in line  # no spans are made


def test_the_same_is_a_line_for_people(server: Running) -> None:
    with logged("text") as stream:
        ask(server, "order-2")
    (line,) = [line for line in stream.getvalue().splitlines() if "order-2" in line]
    assert re.match(r"\S+Z INFO    request request=order-2 method=POST route=/v1/chat/", line)


@pytest.mark.parametrize(("path", "lines"), [("/health", 0), ("/metrics", 0), ("/version", 1)])
def test_probes_that_are_answered_are_not_logged(server: Running, path: str, lines: int) -> None:
    probe, fault = f"probe-{path[1:]}", f"fault-{path[1:]}"
    with logged("json") as stream, server.client() as http:
        assert http.get(path, headers={"x-request-id": probe}).status_code == 200
        assert http.get("/nowhere", headers={"x-request-id": fault}).status_code == 404
        until = time.monotonic() + 5
        while fault not in stream.getvalue() and time.monotonic() < until:
            time.sleep(0.005)  # a line comes when the answer has gone
    assert stream.getvalue().count(probe) == lines
    assert stream.getvalue().count(fault) == 1


def test_a_fact_with_a_line_break_stays_within_its_line() -> None:
    with logged("text") as stream:
        log_event(logging.getLogger("firstlight.test"), "event", fact="a\nINFO forged=1")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("name", NAMES)
def test_warnings_of_the_libraries_have_the_same_form(name: str) -> None:
    with logged("json") as stream:
        logging.getLogger(f"{name}.part").warning("something %s", "happened")
    assert json.loads(stream.getvalue())["event"] == "something happened"
