"""How a run's time splits over calls that an engine makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

Calls = Mapping[str, tuple[Any, str]]
"""What a call is named in the figures -> the object and its method"""


def computing_calls(engine: Engine) -> Calls:
    """Those of an engine that are not Python: executor and sampler."""
    return {
        "executor": (engine.executor, "execute"),
        "sampling": (engine.sampler, "sample"),
        "beams": (engine.sampler, "continuations"),
    }


def step_calls(engine: Engine) -> Calls:
    """All the stations of a step, and the step itself."""
    return {
        **computing_calls(engine),
        "scheduler": (engine.scheduler, "schedule"),
        "step builder": (engine._builder, "build"),
        "step": (engine, "step"),
    }


class Stopwatch:
    """Adds up the seconds spent inside methods of some objects.

    It takes the place of the methods on these objects, so that they need no hooks for it, until it is closed.
    """

    def __init__(self, calls: Calls) -> None:
        self.seconds = dict.fromkeys(calls, 0.0)
        self.counts = dict.fromkeys(calls, 0)
        self._patched = [(target, method, vars(target).get(method)) for target, method in calls.values()]
        for name, (target, method) in calls.items():
            setattr(target, method, self._timed(name, getattr(target, method)))

    def reset(self) -> None:
        """Begins anew."""
        for name in self.seconds:
            self.seconds[name], self.counts[name] = 0.0, 0

    def close(self) -> None:
        """Puts the methods back."""
        for target, method, own in self._patched:
            if own is None:
                delattr(target, method)
            else:
                setattr(target, method, own)
        self._patched = []

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **keywords)
            finally:
                self.seconds[name] += time.perf_counter() - started
                self.counts[name] += 1

        return timed
