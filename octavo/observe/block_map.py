"""Every block of the pool at one moment: its state, who refers to it, how full it is.

Taken in two parts. `capture` runs in the engine's thread, between two steps, and only copies lists; `BlockMap`
makes the map of that, wherever there is time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.observe.reservation import Reservation, engine_reservation

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.prefix_cache import PrefixNode
    from octavo.engine.request import Request
    from octavo.engine.stats import EngineStats

MOST_WAITING = 64
"""Waiting requests that are listed; their number is in the figures"""
MOST_OWNERS = 16
"""Owners of one block that are listed; its reference count says how many there are"""

Cell = list[int]
"""[block, reference count, filled slots, owner, owner, ...]"""


@dataclass(frozen=True, slots=True)
class SequenceView:
    """What one sequence holds."""

    num_tokens: int
    num_computed_tokens: int
    tables: tuple[tuple[int, list[int]], ...]
    """(first logical block, block ids from there on) for each KV group"""


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request that runs or waits."""

    number: int
    """In order of arrival, from 0: its name in the cells"""
    request_id: str
    running: bool
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    sequences: list[SequenceView]


@dataclass(frozen=True, slots=True)
class Capture:
    """Copies of an engine's lists, all from between the same two steps."""

    version: int
    """What the observer called the engine's state"""
    stats: EngineStats
    max_model_len: int
    ref_counts: list[int]
    cached: list[int]
    contents: Mapping[int, tuple[PrefixNode, int]]
    """What registered blocks hold: (node, KV group); the cached ones are among them"""
    requests: list[RequestView]
    reservation: Reservation


def capture(engine: Engine, version: int = 0) -> Capture:
    """Copies what a map is made of. In the engine's thread, between two steps."""
    scheduler = engine.scheduler
    waiting = [request for request, _ in zip(scheduler.waiting, range(MOST_WAITING), strict=False)]
    return Capture(
        version,
        engine.stats(),
        engine.config.max_model_len,
        engine.pool.ref_counts.copy(),
        engine.pool.snapshot()[1],
        {} if engine.manager.prefix_cache is None else dict(engine.manager.prefix_cache.registered()),
        [_view(request, True) for request in scheduler.running] + [_view(request, False) for request in waiting],
        engine_reservation(engine),
    )


def _view(request: Request, running: bool) -> RequestView:
    return RequestView(
        request.arrival,
        request.request_id,
        running,
        request.num_prompt_tokens,
        request.num_cached_tokens,
        sum(sequence.num_output_tokens for sequence in request.sequences),
        request.num_preemptions,
        [
            SequenceView(
                len(sequence.token_ids),
                sequence.num_computed_tokens,
                tuple((table.first_mapped, table.blocks[table.first_mapped :]) for table in sequence.tables),
            )
            for sequence in request.active
        ],
    )


class BlockMap:
    """Cells of all blocks, the requests, and the figures of the same moment."""

    def __init__(self, taken: Capture) -> None:
        self.version = taken.version
        self.stats = taken.stats
        self.max_model_len = taken.max_model_len
        self.reservation = taken.reservation
        self._references = np.array(taken.ref_counts, np.int32)
        self._filled = np.zeros(len(taken.ref_counts), np.int32)
        self._first_owner = np.full(len(taken.ref_counts), -1, np.int32)
        self._owners: dict[int, list[int]] = {}
        """Of shared blocks"""
        self._cached = np.zeros(len(taken.ref_counts), bool)
        self._cached[taken.cached] = True
        self._filled[taken.cached] = [len(taken.contents[block][0].tokens) for block in taken.cached]
        for request in taken.requests:
            self._place(request)
        self.requests = [self._describe(request) for request in taken.requests]

    def cells(self) -> list[Cell]:
        """Of all blocks that are not free."""
        return [self._cell(block) for block in np.flatnonzero(self._cached | (self._references > 0)).tolist()]

    def changes_since(self, earlier: BlockMap) -> list[Cell]:
        """Cells of all blocks that differ. A free one has no references and no filled slots."""
        differs = (
            (self._references != earlier._references)
            | (self._filled != earlier._filled)
            | (self._first_owner != earlier._first_owner)
        )
        shared = {block for block, owners in self._owners.items() if earlier._owners.get(block) != owners}
        return [self._cell(block) for block in sorted({*np.flatnonzero(differs).tolist(), *shared})]

    def figures(self) -> dict[str, int]:
        """Counts of blocks and slots."""
        stats = self.stats
        return {
            "total_blocks": stats.total_blocks,
            "free_blocks": stats.free_blocks,
            "cached_blocks": stats.cached_blocks,
            "owned_blocks": stats.referenced_blocks - stats.shared_blocks,
            "shared_blocks": stats.shared_blocks,
            "references": int(self._references.sum()),
            "used_slots": stats.used_slots,
            "wasted_slots": stats.wasted_slots,
            "running": stats.running,
            "waiting": stats.waiting,
            "preemptions": stats.preemptions,
            "generated_tokens": stats.generated_tokens,
            "prefix_queried_tokens": stats.prefix_queried_tokens,
            "prefix_hit_tokens": stats.prefix_hit_tokens,
            "reserved_max_model_len": self.reservation.max_model_len,
            "reserved_power_of_two": self.reservation.power_of_two,
        }

    def as_json(self) -> dict[str, Any]:
        """The whole map; docs/observing.md describes the fields."""
        return {
            "version": self.version,
            "block_size": self.stats.block_size,
            "max_model_len": self.max_model_len,
            "figures": self.figures(),
            "requests": self.requests,
            "blocks": self.cells(),
        }

    # ---- inside ----

    def _place(self, request: RequestView) -> None:
        """Enters what one request holds. A block that several tables fill is as full as the fullest says."""
        size, counts = self.stats.block_size, self._references
        for sequence in request.sequences:
            for first, ids in sequence.tables:
                blocks = np.array(ids, np.int64)
                starts = np.arange(first, first + len(ids)) * size
                filled = np.clip(sequence.num_computed_tokens - starts, 0, size)
                np.maximum.at(self._filled, blocks, filled.astype(np.int32))
                mine = blocks[self._first_owner[blocks] < 0]
                self._first_owner[mine] = request.number
                for block in blocks[counts[blocks] > 1].tolist():
                    owners = self._owners.setdefault(block, [])
                    if len(owners) < MOST_OWNERS and request.number not in owners:
                        owners.append(request.number)

    def _cell(self, block: int) -> Cell:
        owner = int(self._first_owner[block])
        owners: Iterable[int] = self._owners.get(block, () if owner < 0 else (owner,))
        return [block, int(self._references[block]), int(self._filled[block]), *owners]

    def _describe(self, request: RequestView) -> dict[str, Any]:
        held = {block for sequence in request.sequences for _, ids in sequence.tables for block in ids}
        blocks = np.fromiter(held, np.int64, len(held))
        return {
            "number": request.number,
            "id": request.request_id,
            "state": "running" if request.running else "waiting",
            "sequences": len(request.sequences),
            "prompt_tokens": request.prompt_tokens,
            "cached_tokens": request.cached_tokens,
            "output_tokens": request.output_tokens,
            "preemptions": request.preemptions,
            "blocks": len(held),
            "shared_blocks": int((self._references[blocks] > 1).sum()),
            "unfilled_slots": int((self.stats.block_size - self._filled[blocks]).sum()),
        }
