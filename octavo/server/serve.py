"""Runs the application until a signal ends it."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from octavo.async_llm import AsyncLLM
from octavo.server.app import create_app
from octavo.server.connection import MAX_HEAD_BYTES, Connection
from octavo.server.context import ServerContext
from octavo.server.options import ListenOptions, ServerOptions
from octavo.server.request_log import log

_OTHER_FILES = 64
"""Open at once besides connections"""
_GRACE = 5.0
"""Seconds after the drain's end in which what was cut may still say so"""
_SWITCH_SECONDS = 0.0005
"""How long one thread keeps the interpreter from another. The engine's thread must not wait for the event loop's
whole round between two steps."""


class DrainingServer(uvicorn.Server):
    """At SIGTERM (or SIGINT): takes no new requests, lets running ones end within a time, then cuts them. A
    second signal ends at once."""

    def __init__(self, config: uvicorn.Config, context: ServerContext) -> None:
        super().__init__(config)
        self._context = context

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn. Not its own one: that would send itself the signal again at the end, and die of it."""
        if self.should_exit:
            self.force_exit = True
            return
        self._context.drain()
        seconds = self._context.options.drain_seconds
        log("draining", signal=signal.Signals(sig).name, running=len(self._context.lifelines), seconds=seconds)
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._context.cut_all)
        self.stop()

    def stop(self) -> None:
        """Ends serve(), from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        style = self._context.reader.tool_style
        log("tools", format=style.format.name, native=style.native, reason=style.reason)
        addresses = [listener.getsockname()[:2] for server in self.servers for listener in server.sockets]
        log("listening", addresses=[f"{address[0]}:{address[1]}" for address in addresses])

    async def main_loop(self) -> None:
        """Sleeps until there is an end to it; uvicorn's own looks ten times a second."""
        if not self.should_exit:
            await self._stopping.wait()


def make_server(llm: AsyncLLM, options: ServerOptions, listen: ListenOptions) -> DrainingServer:
    """A server that is ready to run: `server.run()`."""
    app = create_app(llm, options)
    context: ServerContext = app.state.context
    connection: Any = partial(Connection, options, context.counts.add)  # over h11, which bounds the size of heads
    config = uvicorn.Config(
        app,
        host=listen.host,
        port=listen.port,
        http=connection,
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",  # connection.py says what is no HTTP
        server_header=False,
        date_header=False,  # it needs that look; request_log.py dates answers
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=round(options.drain_seconds + _GRACE),
        ssl_certfile=listen.tls_cert,
        ssl_keyfile=listen.tls_key,
    )
    return DrainingServer(config, context)


def run_server(llm: AsyncLLM, options: ServerOptions, listen: ListenOptions) -> None:
    """Serves until a signal, then closes the model."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    _allow_open_files(options.max_connections + _OTHER_FILES)
    try:
        make_server(llm, options, listen).run()
    finally:
        llm.close()
        log("closed")


def _allow_open_files(wanted: int) -> None:
    """Raises this process's limit where it is lower and may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log("few open files", allowed=allowed, wanted=wanted)
