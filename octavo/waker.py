"""Wakes readers on event loops without making the engine wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from queue import SimpleQueue

Events = Mapping[asyncio.AbstractEventLoop, list[asyncio.Event]]


class Waker:
    """A thread that sets events on their loops.

    To wake a loop is a system call, during which the loop takes the interpreter. Whoever made it then waits for the
    loop's whole round. The engine's thread hands it over and goes on to its next step, in which it needs no
    interpreter.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Events | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="octavo-waker", daemon=True)
        self._thread.start()

    def wake(self, events: Events) -> None:
        """Sets events soon, each on its loop, each loop woken once; returns at once."""
        self._queue.put(events)

    def close(self) -> None:
        """Wakes whom it was told to wake, and ends."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (events := self._queue.get()) is not None:
            for loop, ready in events.items():
                with contextlib.suppress(RuntimeError):  # the loop is closed; its generators were closed with it
                    loop.call_soon_threadsafe(_set_all, ready)


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
