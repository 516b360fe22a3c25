"""The playground at ``/``: a static page that asks this server, and nobody else, from a browser."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstlight.demo import pictures

FOLDER = Path(__file__).parents[1] / "playground"
"""The files of the page."""
PREFIX = "/playground/"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""What the page may load and do: its own files, this server, and pictures that a person gave it."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, and answered with 304
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page, held in memory: there is no path that a request could choose."""

    body: bytes
    media_type: str

    @property
    def etag(self) -> str:
        """Changes with the content."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


def playground_assets() -> dict[str, Asset]:
    """All files by the path at which they are served, and the example pictures among them."""
    found = {"/": _asset("index.html", (FOLDER / "index.html").read_bytes())}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES and path.name != "index.html":
            found[PREFIX + path.name] = _asset(path.name, path.read_bytes())
    examples = [picture for picture in pictures() if picture.in_distribution]
    for picture in examples:
        name = picture.path.name
        found[f"{PREFIX}examples/{name}"] = _asset(name, picture.path.read_bytes())
    listed = [{"file": p.path.name, "question": p.question} for p in examples]
    found[f"{PREFIX}examples.json"] = _asset("examples.json", json.dumps(listed).encode())
    return found


def playground_routes(assets: Mapping[str, Asset]) -> APIRouter:
    """One route for each file; they are no part of the API, so its schema does not have them."""
    router = APIRouter()
    for path, asset in assets.items():
        router.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(_serve(asset))
    return router


def _asset(name: str, body: bytes) -> Asset:
    return Asset(body, _TYPES[Path(name).suffix])


def _serve(asset: Asset) -> Any:
    headers = {**_HEADERS, "ETag": asset.etag}

    async def playground(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.media_type, headers=headers)

    return playground
