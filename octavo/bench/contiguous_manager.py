"""Contiguous reservation under the real engine: the same scheduler, executor and kernels, without paging."""

from __future__ import annotations

from octavo.bench.contiguous import BuddyArena, Policy, reserved_length
from octavo.engine.block_pool import BlockPool
from octavo.engine.block_table import BlockTable
from octavo.engine.kv_cache_manager import NEVER, KVCacheManager, PrefixHit
from octavo.engine.prefix_cache import PrefixCache
from octavo.engine.request import Request, Sequence


class ContiguousManager(KVCacheManager):
    """Admits a request when a range of neighbouring blocks as long as its reservation is free.

    Blocks with consecutive ids lie one after the other in memory, so such a range is contiguous K and V; the kernels
    read it through a table all the same, and are not what differs. The arena owns the whole pool from the start.
    There is one sequence a request, one KV group without a window, and no prefix cache: nothing can be shared.
    """

    policy: Policy
    longest: int
    """Tokens of the longest request that the model takes: what "max" reserves"""

    def __init__(
        self,
        pool: BlockPool,
        prefix_cache: PrefixCache | None,
        block_size: int,
        windows: tuple[int | None, ...],
        max_rows: int,
        max_chunk: int,
    ) -> None:
        if prefix_cache is not None or windows != (None,):
            raise ValueError(
                f"contiguous memory takes models with one KV group without a window, and no prefix cache: "
                f"windows={windows}, enable_prefix_caching={prefix_cache is not None}"
            )
        if -(-self.longest // block_size) > pool.num_blocks:
            raise ValueError(f"a reservation of {self.longest} tokens is longer than the pool")
        super().__init__(pool, None, block_size, windows, max_rows, max_chunk)
        self._arena = BuddyArena(pool.num_blocks)
        self._found: dict[int, int] = {}
        """Start of the range found for a request that is about to be admitted, by its arrival"""
        for _ in range(pool.num_blocks):
            pool.allocate()

    def blocks_wanted(self, request: Request) -> int:
        """Nothing, and not the one block that the scheduler promises to each sequence: its range has it already."""
        return -1

    def blocks_to_admit(self, request: Request, hit: PrefixHit) -> int:
        """None where a range is found, which adopt() then gives to the request; else more than there are."""
        if request.arrival in self._found:
            return 0
        (sequence,) = request.pending
        start = self._arena.allocate(self._reservation(sequence))
        if start is None:
            return 1
        self._found[request.arrival] = start
        return 0

    def adopt(self, sequence: Sequence, hit: PrefixHit) -> None:
        """Gives a request the range that was found for it."""
        start = self._found.pop(sequence.request.arrival)
        blocks = list(range(start, start + self._reservation(sequence)))
        sequence.tables = (BlockTable(blocks),)
        sequence.num_computed_tokens = 0
        sequence.writable_end = len(blocks) * self.block_size
        sequence.next_seal = NEVER
        self.rows.change(sequence, 0)

    def release(self, sequence: Sequence) -> None:
        """Gives a sequence's range back. Harmless if it has none."""
        tables, sequence.tables = sequence.tables, ()
        if tables:
            self._arena.free(tables[0].blocks[0])
        super().release(sequence)

    def _reservation(self, sequence: Sequence) -> int:
        """Blocks of a sequence's range. A sequence that ends by length shows the oracle how long it will be."""
        prompt = sequence.request.num_prompt_tokens
        length = reserved_length(self.policy, prompt, sequence.max_len - prompt, self.longest)
        return -(-length // self.block_size)


def contiguous_manager(policy: Policy, longest: int) -> type[KVCacheManager]:
    """The manager of one policy, for Engine(manager_type=...)."""
    return type(f"{policy.title()}Manager", (ContiguousManager,), {"policy": policy, "longest": longest})
