"""A bounded history of occupancy, sharing and the queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from octavo.observe.reservation import Reservation, engine_reservation

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.stats import EngineStats


class Sample(NamedTuple):
    """The memory and the queue at one moment; between two samples nothing is known, after the last one nothing
    has changed."""

    time: float
    """Seconds since the epoch, in milliseconds' steps"""
    referenced_blocks: int
    shared_blocks: int
    cached_blocks: int
    used_slots: int
    wasted_slots: int
    running: int
    waiting: int
    reserved_max_model_len: int
    """Slots that contiguous pieces of max_model_len would take for the same requests"""
    reserved_power_of_two: int
    """The same for pieces that double"""


class Timeline:
    """The newest `length` samples, at least `interval` seconds apart while the engine works."""

    def __init__(self, interval: float = 0.5, length: int = 600, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._samples: deque[Sample] = deque(maxlen=length)
        self._clock = clock
        self._next = float("-inf")

    def step(self, engine: Engine) -> None:
        """After a step: takes a sample if the last one is old enough."""
        if self._clock() >= self._next:
            self.take(engine)

    def take(self, engine: Engine) -> None:
        """Takes a sample now."""
        self._next = self._clock() + self.interval
        self._samples.append(make_sample(engine.stats(), engine_reservation(engine)))

    def samples(self) -> list[Sample]:
        """Oldest first; from any thread."""
        return list(self._samples)


def make_sample(stats: EngineStats, reservation: Reservation) -> Sample:
    """A sample of this moment."""
    return Sample(
        round(time.time(), 3),
        stats.referenced_blocks,
        stats.shared_blocks,
        stats.cached_blocks,
        stats.used_slots,
        stats.wasted_slots,
        stats.running,
        stats.waiting,
        reservation.max_model_len,
        reservation.power_of_two,
    )
