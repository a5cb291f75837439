"""What ends a request before its end: its client, its deadline, the server's shutdown."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from octavo.server.errors import ApiError


class ClientGone(Exception):
    """The client closed its connection: nobody is there to be told."""


class ClientTooSlow(Exception):
    """The client read nothing for too long."""


class Lifeline:
    """Runs the body of an `async with` until it ends or something cuts it: then its reason is raised.

    One task waits for the client to leave, and timers for the deadline and for a stuck send; the body, and the
    engine's work for it, are cancelled at once.
    """

    def __init__(self, receive: Receive, seconds: float, lifelines: set[Lifeline]) -> None:
        self._receive = receive
        self._seconds = seconds
        self._lifelines = lifelines
        self._reason: Exception | None = None
        self._sending_since: float | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.create_task(self._watch())
        late = ApiError(504, f"the request was not finished within its {self._seconds:g} s", code="deadline_exceeded")
        self._timers["deadline"] = self._loop.call_later(self._seconds, self.cut, late)
        self._lifelines.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifelines.discard(self)
        self._watcher.cancel()
        for timer in self._timers.values():
            timer.cancel()
        if self._reason is not None and self._task.uncancel() == 0 and isinstance(error, asyncio.CancelledError):
            raise self._reason from None

    def cut(self, reason: Exception) -> None:
        """Ends the body with this reason, if nothing has before."""
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    def watch_sends(self, seconds: float) -> None:
        """From now on a send that takes this long cuts."""
        self._timers["send"] = self._loop.call_later(seconds, self._check_send, seconds)

    def begin_send(self) -> None:
        self._sending_since = self._loop.time()

    def end_send(self) -> None:
        self._sending_since = None

    def _check_send(self, seconds: float) -> None:
        left = seconds
        if self._sending_since is not None:
            left -= self._loop.time() - self._sending_since
        if left <= 0:
            self.cut(ClientTooSlow())
        else:
            self._timers["send"] = self._loop.call_later(left, self._check_send, seconds)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cut(ClientGone())
