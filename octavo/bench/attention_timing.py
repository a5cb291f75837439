"""Attention alone, over a cache of its own: how long one pass over all layers takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from octavo.bench.model_shape import ModelShape
from octavo.native_library import native_library

if TYPE_CHECKING:
    from octavo._native import ThreadTeam

Order = Literal["shuffled", "in order", "one block"]
"""Blocks dealt out in random order; one after the other; a block that holds the whole context: contiguous memory"""
MOST_KV_BYTES = 2**30
"""Of a cache: where all layers need more, fewer are measured and the time is scaled up"""


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """`seqs` sequences of `context` tokens, of which the last `new` are computed."""

    seqs: int
    context: int
    new: int = 1

    @property
    def name(self) -> str:
        return "attention decode" if self.new == 1 else "attention prefill"


class TimedAttention:
    """One case, ready to be timed: its cache is full of random K and V.

    Each call walks through the layers' places as a step does, so that the CPU's caches hold no more of K and V than
    they would there.
    """

    def __init__(
        self,
        shape: ModelShape,
        case: AttentionCase,
        block_size: int,
        order: Order,
        kv_dtype: str,
        isa: str,
        team: ThreadTeam,
    ) -> None:
        """block_size: ignored for "one block". Raises ValueError for a kv_dtype that the library does not know."""
        native = native_library()
        size = -(-case.context // 32) * 32 if order == "one block" else block_size
        blocks = -(-case.context // size)
        one = native.KvCache(1, size, 1, shape.kv_heads, shape.head_dim, kv_dtype).block_bytes
        self.case, self.shape = case, shape
        places = max(1, min(shape.layers, MOST_KV_BYTES // (one * blocks * case.seqs)))
        self.kv_bytes = int(case.seqs * case.context / size * one * shape.layers)
        """Of K and V that one pass over all layers reads"""
        self._cache = native.KvCache(case.seqs * blocks, size, places, shape.kv_heads, shape.head_dim, kv_dtype)
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((size * blocks, shape.kv_heads, shape.head_dim), dtype=np.float32)
        for place in range(places):
            for seq in range(case.seqs):
                self._cache.write(place, rows, rows, np.arange(len(rows), dtype=np.int32) + np.int32(seq * len(rows)))
        count = case.seqs * blocks
        ids = rng.permutation(count) if order == "shuffled" else np.arange(count)
        self._arguments = (
            rng.standard_normal((case.seqs * case.new, shape.heads * shape.head_dim), dtype=np.float32),
            self._cache,
            np.arange(case.seqs + 1, dtype=np.int32) * np.int32(case.new),
            np.full(case.seqs, case.context, np.int32),
            ids.astype(np.int32).reshape(case.seqs, blocks),
            shape.heads,
            shape.kv_heads,
            0,
            shape.head_dim**-0.5,
            isa,
            team,
        )

    @property
    def operations(self) -> int:
        """Of the two products of every token with those before it, over all layers."""
        case = self.case
        pairs = case.seqs * case.new * (2 * case.context - case.new + 1) // 2
        return 4 * pairs * self.shape.heads * self.shape.head_dim * self.shape.layers

    def seconds(self, repeats: int) -> float:
        """Of one pass over all layers: the least of `repeats`."""
        times = native_library().time_attention(*self._arguments, repeats)
        return float(min(wall for wall, _ in times)) * self.shape.layers
