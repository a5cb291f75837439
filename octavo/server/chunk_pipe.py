"""The short way from where a streamed answer is made to its connection."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol, cast

from starlette.types import Scope

_KEY = "octavo.pipe"


class ChunkPipe(Protocol):
    """What a connection offers to the answer that is under way on it."""

    async def send_chunk(self, body: bytes) -> None:
        """Sends a piece of an answer whose head was sent, has no content-length, and whose last piece goes the usual
        way. Waits while the client reads too slowly; does nothing where it has left."""

    def cut(self) -> None:
        """Ends the connection at once, with all that its client has not taken: to close it would wait for that."""


def offer(scope: object, pipe: ChunkPipe) -> None:
    """Called by a connection for a request that has just come."""
    cast(MutableMapping[str, Any], scope)[_KEY] = pipe


def chunk_pipe(scope: Scope) -> ChunkPipe | None:
    """None where another server runs the application, or for a client of HTTP/1.0, which knows no chunks.

    Every layer between (four of middleware, and h11 with its check of states) would pass such a piece on as it is.
    """
    return scope.get(_KEY) if scope.get("http_version") == "1.1" else None


def cut(scope: Scope) -> None:
    """Ends the connection of a request whose client takes nothing; another server than ours closes it in its way."""
    pipe: ChunkPipe | None = scope.get(_KEY)
    if pipe is not None:
        pipe.cut()
