"""A web server on this machine whose every contact is counted."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).with_name("certificate.pem")
"""For ``pictures.example``, signed by itself, with its key; of no use to anybody."""


@dataclass
class Listener:
    """What a server saw."""

    host: str
    port: int
    hits: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    def url(self, path: str = "/a.png", host: str | None = None) -> str:
        """An address here, by default under this server's own."""
        return f"http://{host or self.host}:{self.port}{path}"


Answer = Callable[[BaseHTTPRequestHandler], None]


def sends(data: bytes, *, status: int = 200, **headers: str) -> Answer:
    """An answer with a body; header names are written with underscores."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content_length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def redirects(to: str, status: int = 302) -> Answer:
    """An answer that leads elsewhere."""
    return sends(b"", status=status, location=to)


@contextmanager
def listening(
    answer: Answer, host: str = "127.0.0.1", port: int = 0, tls: bool = False
) -> Iterator[Listener]:
    """Serve until the end of the block; every connection counts as a hit, even without a word."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.requests.append((self.path, dict(self.headers)))
            with suppress(OSError):  # the client had enough
                answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def get_request(self) -> Any:
            found = super().get_request()
            seen.hits += 1
            return found

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Server((host, port), Handler)
    seen = Listener(host, server.server_address[1])
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        context.sni_callback = lambda _socket, name, _context: seen.names.append(name)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def names(table: dict[str, str]) -> Callable[[str, int], list[str]]:
    """A resolver that knows these names only; several addresses are separated by commas."""

    def resolve(host: str, port: int) -> list[str]:
        if host not in table:
            raise OSError(f"no such name: {host}")
        return table[host].split(",")

    return resolve
