"""How a run's time splits: in the executor, in the sampler, and in Python around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.engine import Engine


class Stopwatch:
    """Adds up the seconds spent inside the executor and the sampler of one engine.

    It takes the place of the two methods on these objects, so the engine needs no hooks for it.
    """

    def __init__(self, engine: Engine) -> None:
        self.seconds = 0.0
        self.steps = 0
        executor: Any = engine.executor
        sampler: Any = engine.sampler
        executor_run, sampler_run = executor.execute, sampler.sample
        self._patch(executor, "execute", self._timed(executor_run, counts=True))
        self._patch(sampler, "sample", self._timed(sampler_run, counts=False))

    def reset(self) -> None:
        """Begins anew."""
        self.seconds = 0.0
        self.steps = 0

    def _timed(self, call: Callable[..., Any], counts: bool) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **keywords)
            finally:
                self.seconds += time.perf_counter() - started
                self.steps += counts

        return timed

    @staticmethod
    def _patch(target: Any, name: str, method: Callable[..., Any]) -> None:
        setattr(target, name, method)
