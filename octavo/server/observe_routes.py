"""/metrics, the block map as data and as events, and the page that draws it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from octavo import __version__
from octavo.observe.exposition import CONTENT_TYPE
from octavo.observe.timeline import Sample
from octavo.observe.watch import MAP_INTERVAL, EngineWatch
from octavo.request_driver import EngineError
from octavo.server.endpoint import ANY_TEXT, Endpoint

if TYPE_CHECKING:
    from octavo.observe.block_map import BlockMap
    from octavo.server.context import ServerContext

MOST_LISTENERS = 32
"""Streams of events at once"""
REFRESH = 5.0
"""Seconds after which a listener's map is compared anew though no step was made"""
HEARTBEAT = 15.0
"""Seconds of silence after which a listener gets a comment line, so that proxies keep the connection"""

PAGE_FILES: Mapping[str, str] = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "chat.js": "text/javascript; charset=utf-8",
    "memory.js": "text/javascript; charset=utf-8",
    "block_canvas.js": "text/javascript; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
}
"""The static shell, which is all that a server with API keys shows without one"""

PAGE_PATHS = frozenset({"/", *(f"/page/{name}" for name in PAGE_FILES)})

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def endpoints_for(context: ServerContext) -> list[Endpoint]:
    """Routes that watch the context's AsyncLLM, which is told of it."""
    return [*_data_endpoints(EngineWatch(context.llm, __version__), context), *_page_endpoints()]


def _data_endpoints(watch: EngineWatch, context: ServerContext) -> list[Endpoint]:
    listeners: set[Listener] = set()

    async def metrics(request: Request) -> Response:
        text = watch.metrics_text() + "\n".join(context.counts.lines()) + "\n"
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def blocks(request: Request) -> Response:
        try:
            taken = await watch.block_map()
        except EngineError as error:
            raise HTTPException(503, str(error)) from error
        return JSONResponse(whole_json(taken, watch.timeline.samples()), headers={"Cache-Control": "no-store"})

    async def events(request: Request) -> Response:
        if len(listeners) >= MOST_LISTENERS:
            raise HTTPException(429, f"{MOST_LISTENERS} streams of events are open already", {"Retry-After": "5"})
        listener = Listener(watch, lambda: context.admission.draining)

        async def stream() -> AsyncIterator[str]:
            listeners.add(listener)
            context.at_drain.add(listener.wake)
            try:
                async for text in listener.events():
                    yield text
            finally:
                watch.forget(listener)
                context.at_drain.discard(listener.wake)
                listeners.discard(listener)

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    return [
        Endpoint("GET", "/metrics", metrics, "Metrics in Prometheus' text format", ANY_TEXT),
        Endpoint("GET", "/v1/kv/blocks", blocks, "Every block that is not free, and who owns it"),
        Endpoint("GET", "/v1/kv/events", events, "The same as server-sent events", ANY_TEXT),
    ]


def _page_endpoints() -> list[Endpoint]:
    folder = files("octavo.server") / "page"

    def respond(name: str) -> Response:
        headers = {**_PAGE_HEADERS, "Content-Type": PAGE_FILES[name]}
        return Response((folder / name).read_bytes(), headers=headers)

    async def index(request: Request) -> Response:
        return respond("index.html")

    async def page_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PAGE_FILES:
            raise HTTPException(404, f"there is no /page/{name}")
        return respond(name)

    return [Endpoint("GET", "/", index), Endpoint("GET", "/page/{name}", page_file)]


class Listener:
    """One reader of events. It gets a snapshot, then what has changed since it was last told.

    What changes while it reads slowly is told as one change: nothing piles up.
    """

    def __init__(self, watch: EngineWatch, server_ends: Callable[[], bool]) -> None:
        self._watch = watch
        self._server_ends = server_ends
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._last_sample = 0.0

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events, at most one in MAP_INTERVAL seconds, until the server drains or the engine is closed.
        It sleeps while nothing changes."""
        try:
            told = await self._watch.block_map()
            yield _event("snapshot", whole_json(told, self._samples()))
            asked = sent = time.monotonic()
            while not self._server_ends():
                await asyncio.sleep(MAP_INTERVAL)
                await self._wait_for_change(told.version, REFRESH)
                now = time.monotonic()
                if self._watch.version != told.version or now - asked >= REFRESH:
                    asked = now
                    current = await self._watch.block_map()
                    change = _change(told, current, self._samples())
                    told = current
                    if change is not None:
                        sent = now
                        yield _event("change", change)
                elif now - sent >= HEARTBEAT:
                    sent = now
                    yield ": nothing new\n\n"
        except EngineError:
            return

    def wake(self) -> None:
        """Looks again now; from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and this listener with it
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _wait_for_change(self, version: int, seconds: float) -> None:
        self._woken.clear()
        self._watch.wake_at_change(self, version, self.wake)
        if not self._server_ends():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()

    def _samples(self) -> list[Sample]:
        """Those of the time line that this reader has not got."""
        samples = [sample for sample in self._watch.timeline.samples() if sample.time > self._last_sample]
        if samples:
            self._last_sample = samples[-1].time
        return samples


def _change(told: BlockMap, current: BlockMap, samples: list[Sample]) -> dict[str, Any] | None:
    """What is new, or None."""
    blocks = current.changes_since(told)
    figures = current.figures()
    if not blocks and not samples and figures == told.figures() and current.requests == told.requests:
        return None
    return {
        "version": current.version,
        "figures": figures,
        "requests": current.requests,
        "blocks": blocks,
        "timeline": samples,
    }


def whole_json(taken: BlockMap, samples: list[Sample]) -> dict[str, Any]:
    """A whole map and the time line, with the names of its columns; docs/observing.md describes the fields."""
    return {
        "time": round(time.time(), 3),
        **taken.as_json(),
        "timeline_columns": Sample._fields,
        "timeline": samples,
    }


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
