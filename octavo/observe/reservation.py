"""What an allocator without blocks would have reserved for the same requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Reservation:
    """Slots that running sequences would take if the KV of each were one contiguous piece, shared with nobody."""

    max_model_len: int
    """Where each sequence gets room for the longest one that the model allows: it never moves"""
    power_of_two: int
    """Where each gets the power of two at or above its tokens so far, and moves when it outgrows that"""


def contiguous_reservation(lengths: Iterable[int], max_model_len: int, num_groups: int = 1) -> Reservation:
    """`lengths` are the tokens so far of each sequence, prompt included; each KV group takes its own slots."""
    count = doubled = 0
    for length in lengths:
        count += 1
        doubled += min(1 << max(0, length - 1).bit_length(), max_model_len)
    return Reservation(count * max_model_len * num_groups, doubled * num_groups)


def engine_reservation(engine: Engine) -> Reservation:
    """For the requests that run now; call it between steps."""
    lengths = [
        len(sequence.token_ids)
        for request in engine.scheduler.running
        for sequence in (*request.active, *request.pending)
    ]
    return contiguous_reservation(lengths, engine.config.max_model_len, len(engine.manager.windows))
