"""The thread that owns an engine, and the readers on event loops that it wakes."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from octavo.beam_search_params import BeamSearchParams
from octavo.outputs import RequestOutput
from octavo.prompts import TokenizedPrompt
from octavo.request_driver import EngineError, RequestDriver, RequestObserver
from octavo.sampling_params import SamplingParams
from octavo.waker import Waker

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.sequence_update import SequenceUpdate
    from octavo.engine.stats import EngineStats
    from octavo.guidance import TokenConstraint
    from octavo.loading import LoadedModel
    from octavo.request_state import RequestState

PAUSE_SECONDS = 0.05
"""After so long without a request, memory is committed for the KV of the next ones."""

READY_BYTES = 128 * 2**20
"""So much of it: where a host takes its guests' unused memory back, 2 MB cost the step that first writes them 4 ms"""

IDLE_SECONDS = 2.0
"""After so long more, KV memory that holds nothing goes back to the system, but for that."""

STATS_SECONDS = 0.1
"""Age at which a step renews what stats() says, if no request has ended in it: few ask, and it costs each step. What
steps make is handed out no later."""

FEW_STREAMS = 24
"""With more of them the intervals between a stream's outputs grow in proportion: all together get as many a second"""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class EngineObserver(RequestObserver, Protocol):
    """Told, in the engine's thread, of requests and steps. It must be quick; where it raises, it is told no
    more."""

    def stepped(self, engine: Engine, steps: Sequence[tuple[float, int]]) -> None:
        """What was computed since the last call: each step's seconds, and engine.computed_tokens after it."""

    def rested(self, engine: Engine) -> None:
        """There is nothing to do any more."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How the engine's thread gets on."""

    alive: bool
    """False once it has ended"""
    unfinished: int
    """Requests that it has still to finish"""
    seconds_since_step: float
    """Since its last step ended, or since there was work again; 0 where there is none"""


class Stream:
    """One reader: its event loop, and whether it has been told that there is something to read."""

    def __init__(self, state: RequestState, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        self.state = state
        self.loop = loop
        self.interval = interval
        self.told_late = state.told_late and not isinstance(state.params, BeamSearchParams)  # which end all at once
        self.ready = asyncio.Event()
        self.told = False
        self.due = 0.0
        """When it may be told again of a request that goes on"""


class EngineThread:
    """Owns the engine. Other threads leave commands; it sleeps on a condition while there is nothing to do.

    The lock guards commands, streams and request states. It is held while tokens are handed out, never while
    the engine computes. What steps have made is handed out when a reader may be told of it, and before any command
    is done: between two steps as little is done, of memory as little touched, as can be.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._driver = RequestDriver(loaded.engine, loaded.tokenizer, loaded.vocab_size, loaded.grammars)
        self._condition = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._streams: dict[str, Stream] = {}
        self._held: dict[Stream, None] = {}  # have something to read, and are not told yet
        self._late: dict[Stream, None] = {}  # are told late: once they are due, the engine is asked what has come
        self._updates: list[SequenceUpdate] = []  # are not handed out yet
        self._steps: list[tuple[float, int]] = []  # of which the observer was not told yet
        self._due = 0.0  # when the next reader may be told of something that does not begin or end
        self._looks: set[Future[Any]] = set()
        self._observer: EngineObserver | None = None
        self._closing = False
        self._last_step = time.monotonic()
        self._stepping = False
        self._take_stats()
        self._waker = Waker()
        self._thread = threading.Thread(target=self._work, name="octavo-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        request_id: str,
        prompt: TokenizedPrompt,
        params: SamplingParams | BeamSearchParams,
        constraint: TokenConstraint | None,
        interval: float = 0.0,
    ) -> Stream:
        """Queues a request for the engine; called on the reader's event loop. After an output the reader is woken by
        the first step that ends `interval` seconds later or more, or ends the request."""
        state = self._driver.new_state(request_id, prompt, params, incremental=True)
        state.constraint = constraint
        stream = Stream(state, asyncio.get_running_loop(), interval)
        with self._condition:
            if self._closing:
                raise EngineError("the AsyncLLM is closed")
            if request_id in self._streams:
                raise ValueError(f"request_id={request_id!r}: is in use by a request that has not finished")
            if not self._streams and not self._stepping:
                self._last_step = time.monotonic()
            self._streams[request_id] = stream
            self._commands.append(lambda: self._add(stream))
            self._condition.notify()
        return stream

    def take(self, stream: Stream) -> RequestOutput:
        """The newest output of a stream that was told to read. Raises what ended it."""
        with self._condition:
            stream.ready.clear()
            stream.told = False
            stream.due = time.monotonic() + stream.interval * max(1.0, len(self._streams) / FEW_STREAMS)
            self._due = min(self._due, stream.due)
            state = stream.state
            if stream.told_late and not state.finished:
                self._late[stream] = None
            if state.error is not None:
                raise state.error
            try:
                return state.next_output()
            except Exception as error:  # its text fails
                self._commands.append(functools.partial(self._abort_state, state, error))
                self._condition.notify()
                raise

    def abort(self, request_id: str) -> None:
        """Ends a request; its reader is told."""
        with self._condition:
            self._commands.append(lambda: self._abort(request_id))
            self._condition.notify()

    def reset_prefix_cache(self) -> None:
        with self._condition:
            self._commands.append(self._loaded.engine.drop_prefix_cache)
            self._condition.notify()

    def abandon(self, stream: Stream) -> None:
        """The reader is gone: forget the stream, and abort the request if it still runs."""
        with self._condition:
            if self._streams.get(stream.state.request_id) is stream:
                del self._streams[stream.state.request_id]
            self._held.pop(stream, None)
            self._late.pop(stream, None)
            if not stream.state.finished and not self._closing:
                self._commands.append(lambda: self._abort_state(stream.state))
                self._condition.notify()

    def stats(self) -> EngineStats:
        with self._condition:
            return self._stats

    def observe(self, observer: EngineObserver) -> None:
        with self._condition:
            self._observer = self._driver.observer = observer

    def look(self, look: Callable[[Engine], _T]) -> Future[_T]:
        """Queues a look at the engine between two steps."""
        future: Future[_T] = Future()

        def run() -> None:
            self._looks.discard(future)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(look(self._loaded.engine))
                except Exception as error:
                    future.set_exception(error)

        with self._condition:
            if self._closing:
                raise EngineError("the AsyncLLM is closed")
            self._looks.add(future)
            self._commands.append(run)
            self._condition.notify()
        return future

    def progress(self) -> Progress:
        unfinished = len(self._streams)
        # A step that hangs is seen also when everybody who waited for it has left.
        waited = time.monotonic() - self._last_step if unfinished or self._stepping else 0.0
        return Progress(self._thread.is_alive(), unfinished, waited)

    def close(self) -> None:
        with self._condition:
            self._closing = True
            self._condition.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        engine = self._loaded.engine
        try:
            while self._handle_commands():
                started, steps = time.monotonic(), engine.steps
                self._stepping = True
                try:
                    updates = engine.step()
                except Exception as error:
                    self._fail(error)
                    continue
                finally:
                    self._stepping = False
                self._last_step = now = time.monotonic()
                self._updates += updates
                if engine.steps != steps:  # else there was nothing to do
                    self._steps.append((now - started, engine.computed_tokens))
                if now >= self._due or self._driver.awaits(updates):
                    with self._condition:
                        self._hand_out(now)
        finally:
            self._end()

    def _hand_out(self, now: float = 0.0) -> None:
        """Takes what steps have made to the requests, and wakes those readers that are due now."""
        steps, self._steps = self._steps, []
        updates, self._updates = self._updates, []
        if not steps and not updates:
            return
        changed = self._driver.deliver(updates)
        for stream in self._late:
            if stream.due <= now and self._driver.catch_up(stream.state):
                self._held[stream] = None
        if now >= self._stats_due or any(state.finished for state in changed):
            self._take_stats()
        if steps:
            self._tell_observer(steps)
        self._tell(changed, now)  # last: whom it wakes wants the lock
        self._due = min([self._stats_due, *[stream.due for stream in (*self._held, *self._late)]])

    def _tell_observer(self, steps: list[tuple[float, int]]) -> None:
        """Of steps, or without any that there is nothing to do."""
        if self._observer is None:
            return
        try:
            if steps:
                self._observer.stepped(self._loaded.engine, steps)
            else:
                self._observer.rested(self._loaded.engine)
        except Exception:
            _log.exception("the observer failed and is told no more")
            self._observer = self._driver.observer = None

    def _rest(self) -> None:
        """Until there is something to do: does the chores, and sleeps."""
        for seconds in self._chores():
            with self._condition:
                if self._condition.wait_for(lambda: self._closing or self._commands, seconds):
                    return

    def _chores(self) -> Iterator[float | None]:
        """What is done without requests, in small pieces, each after the seconds that it yields; None: nothing more."""
        ready = READY_BYTES // self._loaded.block_bytes
        yield PAUSE_SECONDS
        for _ in self._driver.commit_ahead(ready):
            yield 0.0
        yield IDLE_SECONDS
        self._driver.release_idle_memory(ready)
        with self._condition:
            self._take_stats()
        yield None

    def _handle_commands(self) -> bool:
        """Does what other threads have asked for, and waits until there is work. False when closing."""
        if not self._driver.has_unfinished:
            self._rest()
        elif not self._commands and not self._closing:
            return True  # what comes now has time until after the next step
        with self._condition:
            self._hand_out()
            while self._commands and not self._closing:
                command = self._commands.popleft()
                try:
                    command()
                except Exception as error:
                    self._tell(self._driver.abort_all(_engine_error(error)))
            if not self._driver.has_unfinished:
                self._take_stats()
                self._tell_observer([])
            return not self._closing

    def _add(self, stream: Stream) -> None:
        state = stream.state
        if self._streams.get(state.request_id) is not stream:
            return  # its reader left before the engine saw it
        try:
            self._driver.add(state)
        except Exception as error:
            state.end("abort", error)
            self._tell([state])

    def _abort(self, request_id: str) -> None:
        state = self._driver.abort(request_id)
        if state is not None:
            self._tell([state])

    def _abort_state(self, state: RequestState, error: Exception | None = None) -> None:
        """Aborts this very request, not a later one with the same id."""
        if self._driver.is_running(state):
            self._driver.abort(state.request_id, error)

    def _take_stats(self) -> None:
        self._stats = self._loaded.engine.stats()
        self._stats_due = time.monotonic() + STATS_SECONDS

    def _tell(self, states: list[RequestState], until: float = 0.0) -> None:
        """Wakes the readers of these and of earlier states: those of requests that have ended, and those that are due
        until then. Each is woken once until it has read, and each event loop once: that is a system call."""
        for state in states:
            stream = self._streams.get(state.request_id)
            if stream is not None and stream.state is state:
                if state.finished:
                    del self._streams[state.request_id]
                if not stream.told:
                    self._held[stream] = None
        ready: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for stream in [stream for stream in self._held if stream.due <= until or stream.state.finished]:
            del self._held[stream]
            self._late.pop(stream, None)
            stream.told = True
            ready.setdefault(stream.loop, []).append(stream.ready)
        if ready:
            self._waker.wake(ready)

    def _fail(self, error: Exception) -> None:
        with self._condition:
            self._hand_out()
            self._tell(self._driver.abort_all(_engine_error(error)))

    def _end(self) -> None:
        """Nobody waits for ever: every reader that is left gets an error."""
        with self._condition:
            self._closing = True
            self._hand_out()
            error = EngineError("the AsyncLLM was closed")
            self._tell(self._driver.abort_all(error))
            for future in self._looks:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            for stream in list(self._streams.values()):
                stream.state.end("abort", error)
                self._tell([stream.state])
            self._loaded.close()
        self._waker.close()


def _engine_error(cause: Exception) -> EngineError:
    error = EngineError(f"the engine failed in a step: {cause}")
    error.__cause__ = cause
    return error
