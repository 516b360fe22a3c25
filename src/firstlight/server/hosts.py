"""Which names a server may be asked by: the check against DNS rebinding.

A page on the web may give its own name the address of this machine, and then reads a server here
as if it were its own: to the browser both have one origin. What gives it away is the name that it
asks for, which is in the Host header (https://www.rfc-editor.org/rfc/rfc9110#section-7.2). An
address cannot be rebound, so whoever asks by one is served.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from firstlight.server.failures import Failure
from firstlight.server.settings import ServerSettings

ANY = "*"
_REFUSED = Failure(
    403,
    "the Host header names a host that this server does not answer to; accepted: addresses, "
    "localhost, and what --allowed-hosts names",
    "permission_error",
    None,
    "host_not_allowed",
)


def accepted_hosts(settings: ServerSettings, *, keyed: bool) -> frozenset[str] | None:
    """The names that are answered to, beside addresses and localhost; None if all are.

    Where nothing is set, names matter to a server that only programs of this machine can reach and
    that asks for no key: nothing but the name keeps pages of others away from it.
    """
    if ANY in settings.allowed_hosts:
        return None
    if not settings.allowed_hosts and (keyed or not settings.is_local):
        return None
    return frozenset(name.lower().rstrip(".") for name in settings.allowed_hosts)


class HostCheck:
    """Turns away requests that ask for another host.

    Args:
        hosts: names, lower case; one that begins with a dot stands for all below it.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(hosts)
        self._suffixes = tuple(name for name in hosts if name.startswith("."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose Host is accepted; one of HTTP/1.0 may have none."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) > 1 or not all(self._accepts(_name(value)) for value in given):
                scope.get("state", {}).get("facts", {})["error"] = _REFUSED.code
                await _REFUSED.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _accepts(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or _is_address(name):
            return True
        return name in self._names or name.endswith(self._suffixes)


def _name(value: bytes) -> str:
    """The host of ``host:port`` or ``[address]:port``, lower case, without a final dot."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
