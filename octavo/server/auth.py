"""API keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health/live"})
OPEN_PREFIXES = ("/page/",)
"""The page's static shell holds no data; what it shows it asks for with a key."""


class KeyGuard:
    """ASGI middleware: every route needs a key, but for liveness and the page's static shell.

    Digests are compared, all of them each time and in constant time, so that the time taken says nothing
    about a key.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]) or self._allows(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "a valid API key is needed, as the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = (given[0] if len(given) == 1 else b"").partition(b" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == b"bearer"


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
