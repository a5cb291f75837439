"""One line of JSON for each request, without any text of prompts or answers unless that was asked for."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from email.utils import formatdate
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.request_counts import NO_ROUTE, RequestCounts

LOGGER = logging.getLogger("octavo.server")
_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_KEY = "octavo.log"
_STATUS = "octavo.status"


def note(scope: Scope, **facts: Any) -> None:
    """Adds facts to the line of a request."""
    scope.setdefault(_KEY, {}).update(facts)


def note_failure(scope: Scope, status: int) -> None:
    """A stream that had begun well ends with an error: it counts with this status."""
    scope[_STATUS] = status


class RequestLog:
    """ASGI middleware: gives each request an id (the client's X-Request-Id, if it is a sane one), answers with
    it, and counts and logs the request when it has ended."""

    def __init__(self, app: ASGIApp, counts: RequestCounts, paths: frozenset[str]) -> None:
        """`paths` of routes without parameters, which are counted as they are."""
        self._app = app
        self._counts = counts
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        facts: dict[str, Any] = {}
        scope[_KEY] = facts
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                date = formatdate(usegmt=True).encode()
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id), (b"date", date)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._counts.add(self._route(scope), scope.get(_STATUS, status))
            client = scope.get("client") or ("", 0)
            log(
                "request",
                request_id=request_id.decode(),
                client=client[0],
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=round(time.perf_counter() - started, 4),
                **facts,
            )

    def _route(self, scope: Scope) -> str:
        """Also where a request did not get as far as its route."""
        path = str(scope["path"])
        return path if path in self._paths else getattr(scope.get("route"), "path", NO_ROUTE)


def log(event: str, **facts: Any) -> None:
    """Writes one line of JSON, ASCII only: nothing in it can break the line or the terminal."""
    if LOGGER.isEnabledFor(logging.INFO):
        now = time.time()
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        LOGGER.info(json.dumps({"time": when, "event": event, **facts}, separators=(",", ":")))


def log_to_stderr() -> None:
    """Lines of the server's log go to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GOOD_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
