"""HTTP connections, bounded in number and in the time that a client may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.server.chunk_pipe import offer
from octavo.server.errors import ApiError
from octavo.server.options import ServerOptions
from octavo.server.request_log import log

CountAnswer = Callable[[str, int], None]
"""Counts an answer that no route gave: (what was wrong, status)"""
_MOST_AHEAD = 65_536
"""Bytes of further requests that a connection may send before its answer is complete; then it is not read"""
MAX_HEAD_BYTES = 32_768
_MAY_ANSWER = (h11.IDLE, h11.SEND_RESPONSE)
_LINGER_SECONDS = 1.0
"""How long a refused client may still send: closed with bytes unread, a connection is reset and the answer lost"""


class Connection(H11Protocol):
    """uvicorn's connection, which by itself waits for ever for a head, and for the rest of a body that nobody
    wants. One timer says when the client is late with either.

    It goes on reading while an answer is made, also where another request came ahead of its time: else it would
    not see the client leave.
    """

    def __init__(self, options: ServerOptions, count: CountAnswer, **arguments: Any) -> None:
        """`arguments`: what uvicorn gives."""
        super().__init__(**arguments)
        self.timeout_keep_alive = options.keep_alive_seconds  # type: ignore[assignment]  # any number will do
        self._options = options
        self._count = count
        self._timer: asyncio.TimerHandle | None = None
        self._ahead = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = self._options.max_connections
        if len(self.connections) > most:
            message = f"{most} connections are open, which is the limit"
            self._refuse("connections", ApiError(503, message, code="too_many_connections"))
        else:
            self._expect(self._options.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing() or self.conn.their_state is h11.MUST_CLOSE:
            return  # what comes after the last request is nobody's
        if self._timer is None and self.conn.their_state is h11.IDLE:
            self._expect(self._options.head_seconds)
        elif self.conn.their_state is h11.DONE:
            self._ahead += len(data)
        if self.conn.their_state is h11.IDLE and len(data) > MAX_HEAD_BYTES:
            # h11 bounds heads that are incomplete, not those that come in one large piece.
            super().data_received(data[: MAX_HEAD_BYTES + 1])
            data = data[MAX_HEAD_BYTES + 1 :]
            if self._refused or self.transport.is_closing():
                return
        super().data_received(data)
        if self._refused:
            return
        if self._timer is not None and self.conn.their_state is not h11.IDLE and not self._wants_nothing():
            self._relax()
        if self.conn.their_state is h11.DONE and self._ahead <= _MOST_AHEAD:
            self.flow.resume_reading()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:
            offer(self.scope, self)

    async def send_chunk(self, body: bytes) -> None:
        """See ChunkPipe: these are the bytes that h11 would make of it."""
        if self.flow.write_paused and not self.cycle.disconnected:
            await self.flow.drain()
        if not self.cycle.disconnected:
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def cut(self) -> None:
        """See ChunkPipe."""
        self.cycle.disconnected = True
        self.transport.abort()

    def on_response_complete(self) -> None:
        self._ahead = 0
        super().on_response_complete()
        if self._wants_nothing() and not self.transport.is_closing():
            self._expect(self._options.keep_alive_seconds)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP."""
        self._refuse("malformed", ApiError(400, f"this is not an HTTP request: {msg}", code="malformed"))

    def _wants_nothing(self) -> bool:
        """Whether the answer is complete, but the body is still on its way."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _expect(self, seconds: float) -> None:
        self._relax()
        self._timer = self.loop.call_later(seconds, self._late)

    def _relax(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        seconds = self._options.head_seconds
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.close()  # it never asked for anything
            return
        self._refuse("late", ApiError(408, f"no request's head came within {seconds:g} s", code="head_timeout"))

    def _refuse(self, what: str, error: ApiError) -> None:
        """Closes the connection, with an answer where one may still be given."""
        self._count(what, error.status)
        log("refused", client=self.client[0] if self.client else "", reason=what, status=error.status)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _MAY_ANSWER:
            body = json.dumps(error.body).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            events = (h11.Response(status_code=error.status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self._refused = True
        if what == "malformed" and self.transport.can_write_eof():
            self.transport.write_eof()
            self._relax()
            self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.close()
