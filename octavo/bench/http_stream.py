"""A small HTTP/1.1 client over asyncio, for measuring: an answer's lines as they arrive, a connection a request.

The standard library has no client that streams on an event loop, and one thread a stream would take from the cores that
the server under test runs on. It knows what OpenAI-compatible servers send: a status, headers, and a body that is
chunked, of a given length, or ended by the connection.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MAX_LINE = 2**20
"""Longest header, chunk header or line of a stream, in bytes"""


class ProtocolError(RuntimeError):
    """The other side does not speak HTTP/1.1, or ended in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. Raises ValueError for what is no URL of one."""

    host: str
    port: int
    tls: bool
    prefix: str
    """Path before /v1"""

    @classmethod
    def of(cls, url: str) -> Address:
        """http://host:port, with or without the API's /v1 at its end."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query:
            raise ValueError(f"url={url!r}: must be http://HOST:PORT or https://HOST")
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, prefix)


class Answer:
    """Status, headers (names in lower case), and the body as it comes."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def lines(self) -> AsyncIterator[bytes]:
        """The body's lines, without their ends."""
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r")
            if len(rest) > MAX_LINE:
                raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
        if rest:
            yield rest

    async def text(self) -> str:
        """The whole body."""
        return "\n".join([line.decode(errors="replace") async for line in self.lines()])

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self._chunk_size():
                yield await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            while (await _line(self._reader)) != b"":
                pass  # trailers
            return
        left = int(self.headers["content-length"]) if "content-length" in self.headers else None
        while left is None or left > 0:
            piece = await self._reader.read(2**16 if left is None else min(left, 2**16))
            if not piece:
                if left is not None:
                    raise ProtocolError(f"the connection ended {left} bytes before the answer did")
                return
            left = None if left is None else left - len(piece)
            yield piece

    async def _chunk_size(self) -> int:
        line = await _line(self._reader)
        try:
            return int(line.split(b";")[0], 16)
        except ValueError:
            raise ProtocolError(f"no size of a chunk: {line[:80]!r}") from None


@asynccontextmanager
async def send(
    address: Address, method: str, path: str, body: Any = None, key: str | None = None
) -> AsyncIterator[Answer]:
    """Sends a request (`body` as JSON) and gives its answer; closes the connection at the end.

    Raises OSError where there is no connection, ProtocolError for an answer that is no HTTP or has no end.
    """
    context = ssl.create_default_context() if address.tls else None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, limit=MAX_LINE)
    try:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {address.prefix}{path} HTTP/1.1",
            f"Host: {address.host}:{address.port}",
            "Connection: close",
            "Accept: */*",
            *([f"Authorization: Bearer {key}"] if key else []),
            *(["Content-Type: application/json", f"Content-Length: {len(data)}"] if data else []),
        ]
        writer.write("\r\n".join((*lines, "", "")).encode() + data)
        await writer.drain()
        yield await _read_head(reader)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ProtocolError(f"the answer has no end: {error}") from None
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


async def _read_head(reader: asyncio.StreamReader) -> Answer:
    status_line = await _line(reader)
    words = status_line.split(b" ", 2)
    if not words[0].startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        raise ProtocolError(f"no HTTP answer: {status_line[:80]!r}")
    headers: dict[str, str] = {}
    while line := await _line(reader):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Answer(int(words[1]), headers, reader)


async def _line(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\n")).rstrip(b"\r\n")
