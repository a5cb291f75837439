"""Watches one AsyncLLM: its metrics, its time line, and a block map when somebody asks for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from octavo.observe.block_map import BlockMap, Capture, capture
from octavo.observe.metrics import EngineMetrics
from octavo.observe.timeline import Timeline

if TYPE_CHECKING:
    from octavo.async_llm import AsyncLLM
    from octavo.engine.engine import Engine
    from octavo.request_state import RequestState

MAP_INTERVAL = 0.1
"""Seconds between two block maps, however many ask"""


class EngineWatch:
    """The observer of one AsyncLLM. Its methods down to `rested` run in the engine's thread.

    Counting is all that happens unasked, and a sample for the time line twice a second. Block maps are made
    on demand, at most one in MAP_INTERVAL seconds, and shared by all who ask.
    """

    def __init__(self, llm: AsyncLLM, version: str) -> None:
        self._llm = llm
        loaded = llm.loaded
        self.metrics = EngineMetrics(
            {"version": version, "model": loaded.options.model, "kv_cache_dtype": loaded.kv_cache_dtype}
        )
        self.timeline = Timeline()
        self.version = 0
        """Grows whenever blocks may have changed"""
        self._waiting: dict[object, Callable[[], None]] = {}
        self._rested = -1
        self._lock = asyncio.Lock()
        self._map: BlockMap | None = None
        self._map_time = float("-inf")
        llm.observe(self)

    # ---- in the engine's thread ----

    def added(self, state: RequestState) -> None:
        self._change()
        self.metrics.count_added(state)

    def first_token(self, state: RequestState) -> None:
        self.metrics.count_first_token(state)

    def ended(self, state: RequestState) -> None:
        self._change()
        self.metrics.count_ended(state)

    def stepped(self, engine: Engine, steps: Sequence[tuple[float, int]]) -> None:
        self._change()
        for seconds, computed_tokens in steps:
            self.metrics.count_step(seconds, computed_tokens)
        self.timeline.step(engine)

    def rested(self, engine: Engine) -> None:
        if self.version != self._rested:
            self._rested = self.version
            self.timeline.take(engine)

    def _change(self) -> None:
        self.version += 1
        for who in list(self._waiting):
            wake = self._waiting.pop(who, None)
            if wake is not None:
                wake()

    # ---- for everybody else, on one event loop ----

    def wake_at_change(self, who: object, version: int, wake: Callable[[], None]) -> None:
        """Calls `wake` once, in the engine's thread, when blocks may have changed since this version: at once where
        they have. A second call for the same `who` changes nothing more."""
        self._waiting[who] = wake
        if self.version != version and self._waiting.pop(who, None) is not None:
            wake()

    def forget(self, who: object) -> None:
        """Wakes it no more."""
        self._waiting.pop(who, None)

    def metrics_text(self) -> str:
        """What Prometheus reads."""
        return self.metrics.text(self._llm.stats())

    async def block_map(self) -> BlockMap:
        """The blocks of now, or of at most MAP_INTERVAL seconds ago. Raises EngineError where the AsyncLLM is
        closed."""
        async with self._lock:
            age = time.monotonic() - self._map_time
            if self._map is None or age >= MAP_INTERVAL:
                self._map = BlockMap(await self._llm.between_steps(self._capture))
                self._map_time = time.monotonic()
            return self._map

    def _capture(self, engine: Engine) -> Capture:
        return capture(engine, self.version)
