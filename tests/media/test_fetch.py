"""Pictures are fetched within limits, from checked addresses, and nothing leaks into a message."""

from __future__ import annotations

import gzip
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from firstlight.errors import MediaError
from firstlight.media.fetch import Fetcher
from firstlight.media.policy import FetchPolicy
from tests.media.listener import (
    CERTIFICATE,
    Answer,
    Listener,
    listening,
    names,
    redirects,
    sends,
)

DATA = b"the bytes of a picture"
INNER = "127.0.0.2"
"""Also this machine, but not in the trusted network: it stands for everything that is refused."""

Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """``listen(answer, ...)`` starts a server that ends with the test."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(listening(*args, **kwargs))


def fetcher(resolve: dict[str, str] | Any = None, **fields: Any) -> Fetcher:
    """A fetcher that may reach 127.0.0.1, which ``pictures.example`` stands for, at any port."""
    if resolve is None or isinstance(resolve, dict):
        resolve = {"pictures.example": "127.0.0.1", **(resolve or {})}
        table = names({"127.0.0.1": "127.0.0.1", INNER: INNER, **resolve})
    else:
        table = resolve
    policy: dict[str, Any] = {"any_host": True, "trusted_networks": ("127.0.0.1",), "ports": None}
    return Fetcher(FetchPolicy(**{**policy, **fields}), resolve=table)


def refusal(fetch: Fetcher, url: str) -> str:
    """The message that a fetch fails with."""
    with pytest.raises(MediaError) as caught:
        fetch.fetch(url)
    return str(caught.value)


UNREACHABLE = "cannot be fetched: its address is not accepted or does not answer"


# -- what is fetched ---------------------------------------------------------------------------


def test_a_picture_is_fetched_from_an_allowed_domain(listen: Listen) -> None:
    server = listen(sends(DATA))
    fetch = fetcher(any_host=False, domains=("pictures.example",))
    assert fetch.fetch(server.url("/a.png?size=1", "pictures.example")) == DATA
    ((path, headers),) = server.requests
    assert path == "/a.png?size=1"
    assert headers["Host"] == f"pictures.example:{server.port}"
    assert headers["Accept-Encoding"] == "identity"
    assert not {"Cookie", "Authorization", "Referer"} & set(headers)


def test_nothing_is_fetched_by_default(listen: Listen) -> None:
    server = listen(sends(DATA))
    fetch = Fetcher(FetchPolicy(trusted_networks=("127.0.0.1",), ports=None))
    assert "no domain is allowed" in refusal(fetch, server.url())
    assert server.hits == 0


def test_a_host_that_is_not_listed_is_not_even_looked_up() -> None:
    looked_up: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return []

    fetch = fetcher(resolve, any_host=False, domains=(".example.org",))
    assert "none of allowed_media_domains" in refusal(fetch, "http://example.com/a.png")
    assert looked_up == []


def test_a_port_that_is_not_accepted_is_refused(listen: Listen) -> None:
    server = listen(sends(DATA))
    assert f"port {server.port}" in refusal(fetcher(ports=(80, 443)), server.url())
    assert server.hits == 0


def test_proxies_of_the_environment_are_not_used(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, proxy = listen(sends(DATA)), listen(sends(b"from the proxy"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url(""))
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert fetcher().fetch(server.url()) == DATA
    assert proxy.hits == 0


# -- addresses ---------------------------------------------------------------------------------


def test_a_name_is_looked_up_once_and_the_connection_goes_where_the_check_was(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the second answer would lead to an inner server at the same port."""
    server = listen(sends(DATA))
    inner = listen(sends(b"secret"), INNER, server.port)
    answers = iter([["127.0.0.1"], [INNER]])
    looked_up: list[object] = []
    system = socket.getaddrinfo

    def record(host: object, *args: Any, **kwargs: Any) -> Any:
        looked_up.append(host)
        return system(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", record)
    fetch = fetcher(lambda host, port: next(answers))
    assert fetch.fetch(server.url(host="pictures.example")) == DATA
    assert inner.hits == 0
    assert looked_up == ["127.0.0.1"]  # the checked address itself, by the socket


def test_the_next_address_is_tried_where_one_does_not_answer(listen: Listen) -> None:
    server = listen(sends(DATA))
    fetch = fetcher({"two.example": f"{INNER},127.0.0.1"}, trusted_networks=("127.0.0.1", INNER))
    assert fetch.fetch(server.url(host="two.example")) == DATA


def test_an_inner_address_a_missing_name_and_a_closed_port_read_alike(listen: Listen) -> None:
    inner = listen(sends(b"secret"), INNER)
    fetch = fetcher({"inner.example": INNER, "closed.example": "127.0.0.1"})
    messages = {
        refusal(fetch, f"http://{host}:{inner.port}/a.png").replace(host, "HOST")
        for host in ("inner.example", "missing.example", "closed.example", INNER, "127.0.0.1")
    }
    assert messages == {f"the picture at HOST {UNREACHABLE}"}
    assert inner.hits == 0


# -- redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(status: int, listen: Listen) -> None:
    server = listen(sends(DATA))
    first = listen(redirects(server.url("/b.png?t=1"), status))
    assert fetcher().fetch(first.url()) == DATA
    assert server.requests[0][0] == "/b.png?t=1"


def countdown(handler: BaseHTTPRequestHandler) -> None:
    """``/3`` leads to ``/2`` and so on; ``/0`` is the picture."""
    left = int(handler.path[1:])
    (redirects(f"/{left - 1}") if left else sends(DATA))(handler)


def test_as_many_redirects_are_followed_as_the_policy_says(listen: Listen) -> None:
    server = listen(countdown)
    assert fetcher(max_redirects=5).fetch(server.url("/5")) == DATA
    assert "more than 5 redirects" in refusal(fetcher(max_redirects=5), server.url("/20"))
    assert len(server.requests) == 6 + 6
    assert "more than 0 redirects" in refusal(fetcher(max_redirects=0), server.url("/1"))


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("host", [INNER, "inner.example", "both.example", "missing.example"])
def test_a_redirect_to_an_inner_address_is_not_followed(
    host: str, status: int, listen: Listen
) -> None:
    inner = listen(sends(b"secret"), INNER)
    first = listen(redirects(inner.url(host=host), status))
    fetch = fetcher({"inner.example": INNER, "both.example": f"127.0.0.1,{INNER}"})
    message = refusal(fetch, first.url(host="pictures.example"))
    assert message == f"the picture at pictures.example {UNREACHABLE}"
    assert inner.hits == 0


def test_a_redirect_away_from_the_listed_domains_or_ports_is_not_followed(listen: Listen) -> None:
    other = listen(sends(b"secret"))
    first = listen(redirects(other.url(host="other.example")))
    table = {"other.example": "127.0.0.1"}
    listed = fetcher(table, any_host=False, domains=("pictures.example",))
    assert UNREACHABLE in refusal(listed, first.url(host="pictures.example"))
    ports = fetcher(table, ports=(first.port,))
    assert UNREACHABLE in refusal(ports, first.url(host="pictures.example"))
    assert other.hits == 0


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://127.0.0.1/", "data:,a", "http://u:p@127.0.0.1/", "http://["],
)
def test_a_redirect_to_anything_else_is_refused(location: str, listen: Listen) -> None:
    server = listen(redirects(location))
    message = refusal(fetcher(), server.url(host="pictures.example"))
    assert "redirects to something else than an http or https address" in message
    assert location not in message
    assert len(server.requests) == 1


def test_every_step_of_a_chain_is_looked_up_and_checked(listen: Listen) -> None:
    server = listen(countdown)
    answers = iter([["127.0.0.1"], ["127.0.0.1"], [INNER]])
    assert UNREACHABLE in refusal(
        fetcher(lambda host, port: next(answers)), server.url("/5", "pictures.example")
    )
    assert len(server.requests) == 2


# -- limits ------------------------------------------------------------------------------------


def test_a_body_over_the_limit_ends_the_transfer(listen: Listen) -> None:
    sent = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while sent < 1 << 28:
            handler.wfile.write(b"x" * 65536)
            sent += 65536

    server = listen(endless)
    assert "larger than 1000000 bytes" in refusal(fetcher(max_bytes=1_000_000), server.url())
    assert sent < 1 << 26  # what the sockets' buffers take


@pytest.mark.parametrize("size", [10, 11])
def test_the_limit_counts_the_bytes_that_come(size: int, listen: Listen) -> None:
    def chunked(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"1\r\nx\r\n" * size + b"0\r\n\r\n")

    fetch = fetcher(max_bytes=10)
    if size == 10:
        assert fetch.fetch(listen(chunked).url()) == b"x" * 10
    else:
        assert "larger than 10 bytes" in refusal(fetch, listen(chunked).url())


@pytest.mark.parametrize("declared", ["11", "9" * 19])
def test_a_declared_length_over_the_limit_is_refused_at_once(declared: str, listen: Listen) -> None:
    server = listen(sends(b"", content_length=declared))
    assert "larger than 10 bytes" in refusal(fetcher(max_bytes=10, read_s=20), server.url())


def test_a_body_shorter_than_declared_is_no_picture(listen: Listen) -> None:
    def short(handler: BaseHTTPRequestHandler) -> None:
        sends(DATA, content_length="1000")(handler)
        handler.close_connection = True

    assert "ends early" in refusal(fetcher(), listen(short).url())


def test_compressed_answers_are_refused(listen: Listen) -> None:
    bomb = gzip.compress(bytes(1 << 20))
    server = listen(sends(bomb, content_encoding="gzip"))
    assert "compressed" in refusal(fetcher(), server.url())


@pytest.mark.parametrize("status", [204, 206, 304, 401, 404, 500])
def test_an_answer_without_the_picture_is_refused_with_its_status(
    status: int, listen: Listen
) -> None:
    server = listen(sends(b"", status=status))
    assert f"answered with {status}" in refusal(fetcher(), server.url())


def test_a_server_that_never_answers_is_left_in_time(listen: Listen) -> None:
    over = threading.Event()
    server = listen(lambda handler: over.wait(10))
    started = time.monotonic()
    assert UNREACHABLE in refusal(fetcher(read_s=0.1), server.url())
    assert time.monotonic() - started < 2
    over.set()


def drips(line: bytes) -> Answer:
    """An answer that sends ``line`` and then one byte every hundredth of a second."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(line)
        for _ in range(1000):
            handler.wfile.write(b"x")
            time.sleep(0.01)

    return answer


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "comes too slowly"),
    ],
    ids=["headers", "body"],
)
def test_a_server_that_drips_is_left_when_the_whole_time_is_over(
    line: bytes, message: str, listen: Listen
) -> None:
    """Each single byte comes well within the limit of one wait."""
    started = time.monotonic()
    assert message in refusal(fetcher(read_s=5, total_s=0.2), listen(drips(line)).url())
    assert time.monotonic() - started < 2


def test_the_whole_time_holds_over_all_redirects(listen: Listen) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.1)
        countdown(handler)

    started = time.monotonic()
    assert UNREACHABLE in refusal(fetcher(max_redirects=5, total_s=0.25), listen(slow).url("/5"))
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    "answer", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nA" + b"a" * 200000]
)
def test_what_is_no_http_is_refused(answer: bytes, listen: Listen) -> None:
    def raw(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)
        handler.close_connection = True

    assert UNREACHABLE in refusal(fetcher(), listen(raw).url())


# -- TLS ---------------------------------------------------------------------------------------


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def over_tls(table: dict[str, str], **fields: Any) -> Fetcher:
    policy = FetchPolicy(any_host=True, trusted_networks=("127.0.0.1",), ports=None, **fields)
    return Fetcher(policy, resolve=names(table), certificates=trusting())


def test_tls_names_and_verifies_the_host_although_the_address_is_pinned(listen: Listen) -> None:
    server = listen(sends(DATA), tls=True)
    fetch = over_tls({"pictures.example": "127.0.0.1"})
    assert fetch.fetch(f"https://pictures.example:{server.port}/a.png") == DATA
    assert server.names == ["pictures.example"]


def test_a_certificate_of_another_host_is_refused(listen: Listen) -> None:
    server = listen(sends(DATA), tls=True)
    fetch = over_tls({"other.example": "127.0.0.1"})
    assert UNREACHABLE in refusal(fetch, f"https://other.example:{server.port}/a.png")
    assert server.requests == []


def test_a_certificate_that_nobody_vouches_for_is_refused(listen: Listen) -> None:
    server = listen(sends(DATA), tls=True)
    assert UNREACHABLE in refusal(fetcher(), f"https://pictures.example:{server.port}/a.png")
    assert server.requests == []


# -- what is told ------------------------------------------------------------------------------

SECRETS = ("token", "s3cret", "private-path", "fragment")


def told(error: BaseException | None) -> str:
    """Everything that an error and what caused it says."""
    return "" if error is None else f"{error!r} {told(error.__cause__ or error.__context__)}"


@pytest.mark.parametrize(
    "answer",
    [
        sends(b"", status=404),
        sends(DATA, content_length="1"),
        redirects("http://inner.example/private-path?token=s3cret"),
        redirects("http://[::1/private-path?token=s3cret"),
        redirects("/private-path?token=s3cret"),
        sends(b"", content_encoding="gzip"),
    ],
)
def test_no_message_and_no_log_holds_a_path_a_query_or_a_fragment(
    answer: Answer, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = listen(answer).url("/private-path?token=s3cret#fragment", "pictures.example")
    try:
        fetcher({"inner.example": INNER}).fetch(url)
        text = ""
    except MediaError as error:
        text = told(error)
    for secret in SECRETS:
        assert secret not in text
        assert secret not in caplog.text


def test_other_uses_of_the_http_library_are_logged_as_before(
    listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("httpcore2.http11")
    caplog.set_level(logging.DEBUG)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        logger.debug("of another thread")
        sends(DATA)(handler)

    assert fetcher().fetch(listen(answer).url()) == DATA
    logger.debug("afterwards")
    assert [r.message for r in caplog.records if r.name == logger.name] == [
        "of another thread",
        "afterwards",
    ]


def test_threads_fetch_side_by_side(listen: Listen) -> None:
    together = threading.Barrier(4, timeout=5)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        together.wait()
        sends(handler.path.encode())(handler)

    server, fetch, found = listen(answer), fetcher(), {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: fetch.fetch(server.url(f"/{i}"))}))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: f"/{i}".encode() for i in range(4)}
