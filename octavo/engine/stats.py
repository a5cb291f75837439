"""Figures of an engine at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Blocks are in one of three states: total = free + cached + referenced. Counters count from the engine's
    start."""

    total_blocks: int
    free_blocks: int
    cached_blocks: int
    """Unreferenced, kept for the prefix cache"""
    referenced_blocks: int
    shared_blocks: int
    """Referenced more than once"""
    committed_blocks: int
    """Of open segments: what may have memory behind it"""
    peak_blocks: int
    """Most blocks ever referenced at once"""
    block_size: int
    used_slots: int
    """Slots of referenced blocks that hold a token's KV"""
    wasted_slots: int
    """Slots of referenced blocks that hold none: the ends of tail blocks"""
    running: int
    """Requests that hold blocks or get some in the next step"""
    waiting: int
    """Requests in the queue, preempted ones included"""
    running_sequences: int
    preemptions: int
    evictions: int
    prefix_queried_tokens: int
    """Prompt tokens looked up at first admission; what a preempted request looks up again is not counted"""
    prefix_hit_tokens: int
    """Of these, found"""
    computed_tokens: int
    generated_tokens: int
    drafted_tokens: int
    """Computed on trial (octavo.engine.speculation)"""
    accepted_tokens: int
    """Of these, those that sampling confirmed"""
    steps: int

    @property
    def kv_usage(self) -> float:
        """Referenced part of the pool, 0 to 1."""
        return self.referenced_blocks / self.total_blocks

    @property
    def prefix_hit_rate(self) -> float:
        """Hit part of the looked up tokens, 0 to 1."""
        return self.prefix_hit_tokens / self.prefix_queried_tokens if self.prefix_queried_tokens else 0.0
