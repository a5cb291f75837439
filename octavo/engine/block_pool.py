"""The block pool: hands out, shares and takes back block ids. It knows no tensors, no tokens and no
sequences."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class BlockPoolError(RuntimeError):
    """The pool was misused or is exhausted; its state has not changed."""


class BlockPool:
    """Block ids 0 to num_blocks - 1 with reference counts. Every operation on one block is O(1).

    A block is in one of three states:

        free        nobody uses it; its content is meaningless
        referenced  reference count >= 1
        cached      count 0, but its content is kept for the prefix cache, least recently used first out

    The pool is elastic. Ids lie in segments of segment_blocks; a closed segment has no memory behind it.
    allocate() takes the lowest segment that has a free block, so that high segments drain; then it opens the
    next closed segment; only when all are open does it evict a cached block. A segment whose blocks are all
    free can be closed again.
    """

    def __init__(self, num_blocks: int, segment_blocks: int = 64) -> None:
        if num_blocks < 1 or segment_blocks < 1:
            raise ValueError(f"num_blocks={num_blocks}, segment_blocks={segment_blocks}: must be at least 1")
        self.num_blocks = num_blocks
        self.segment_blocks = segment_blocks
        self.ref_counts = [0] * num_blocks
        """Read it freely; only the pool writes it."""
        self.on_evict: Callable[[int], None] = lambda block: None
        """Told the id of a kept block when its content is given up."""
        self.num_shared = 0
        """Blocks with a reference count above 1"""
        self.num_evictions = 0
        self.peak_referenced = 0
        self._kept = bytearray(num_blocks)
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._num_referenced = 0
        num_segments = -(-num_blocks // segment_blocks)
        self._free_ids: list[list[int]] = [[] for _ in range(num_segments)]
        # Sets of segments as bit masks: the lowest one is (mask & -mask).bit_length() - 1.
        self._with_free = 0
        self._closed = (1 << num_segments) - 1

    # ---- counts ----

    @property
    def num_referenced(self) -> int:
        """Blocks with a reference count of at least 1."""
        return self._num_referenced

    @property
    def num_cached(self) -> int:
        """Unreferenced blocks whose content is kept."""
        return len(self._cached)

    @property
    def num_free(self) -> int:
        """Blocks with no content, of open and of closed segments."""
        return self.num_blocks - self._num_referenced - len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that allocate() can hand out: free ones and cached ones."""
        return self.num_blocks - self._num_referenced

    @property
    def num_committed(self) -> int:
        """Blocks of open segments: what may have memory behind it."""
        last = len(self._free_ids) - 1
        closed = self._closed.bit_count() * self.segment_blocks
        if self._closed >> last & 1:
            closed -= self.segment_blocks - self._segment_size(last)
        return self.num_blocks - closed

    # ---- blocks ----

    def allocate(self) -> int:
        """A block with reference count 1 that nobody else has. Raises BlockPoolError where none is
        available."""
        if not self._with_free:
            if self._closed:
                self._open_segment()
            elif self._cached:
                self._evict()
            else:
                raise BlockPoolError(f"all {self.num_blocks} blocks are referenced")
        mask = self._with_free
        lowest = mask & -mask
        free = self._free_ids[lowest.bit_length() - 1]
        block = free.pop()
        if not free:
            self._with_free = mask ^ lowest
        self.ref_counts[block] = 1
        self._count_referenced()
        return block

    def retain(self, block: int) -> None:
        """One more reference to a referenced or cached block."""
        count = self._count_of(block)
        if count == 0:
            if block not in self._cached:
                raise BlockPoolError(f"block {block} is free and cannot be shared")
            del self._cached[block]
            self._count_referenced()
        elif count == 1:
            self.num_shared += 1
        self.ref_counts[block] = count + 1

    def release(self, block: int) -> None:
        """One reference less. The last one makes the block cached (most recently used) if it is kept, else
        free."""
        count = self._count_of(block)
        if count == 0:
            raise BlockPoolError(f"block {block} is released more often than it was taken")
        self.ref_counts[block] = count - 1
        if count == 2:
            self.num_shared -= 1
        elif count == 1:
            self._num_referenced -= 1
            if self._kept[block]:
                self._cached[block] = None
            else:
                self._free(block)

    def keep(self, block: int) -> None:
        """Keeps the content of a referenced block when its last reference goes."""
        if self._count_of(block) == 0:
            raise BlockPoolError(f"block {block} is not referenced: it has no content to keep")
        self._kept[block] = 1

    def is_kept(self, block: int) -> bool:
        """Whether the content belongs to the prefix cache, referenced or not."""
        self._count_of(block)
        return self._kept[block] == 1

    def evict_all(self) -> None:
        """Gives up the content of all cached blocks."""
        while self._cached:
            self._evict()

    # ---- segments ----

    def upcoming(self, count: int) -> list[int]:
        """The next ids that allocate() will hand out without evicting, at most `count`, in their order; opens the
        segments that they are in."""
        missing = count - sum(map(len, self._free_ids))
        while self._closed and missing > 0:
            missing -= self._open_segment()
        ids = [block for free in self._free_ids for block in reversed(free)]
        return ids[:count]

    def releasable_segments(self) -> list[tuple[int, int]]:
        """(first block, count) of each open segment whose blocks are all free."""
        return [
            (index * self.segment_blocks, len(free))
            for index, free in enumerate(self._free_ids)
            if free and len(free) == self._segment_size(index)
        ]

    def order_segment(self, first: int) -> None:
        """Hands the blocks of a releasable segment out in their order from now on."""
        self._free_ids[self._releasable(first)].sort(reverse=True)

    def close_segment(self, first: int) -> None:
        """Closes a releasable segment; the caller gives its memory back."""
        index = self._releasable(first)
        self._free_ids[index].clear()
        self._with_free &= ~(1 << index)
        self._closed |= 1 << index

    def snapshot(self) -> tuple[set[int], list[int]]:
        """(free ids of open segments, cached ids from least to most recently used): for checks, not O(1)."""
        return {block for free in self._free_ids for block in free}, list(self._cached)

    def closed_blocks(self) -> set[int]:
        """Ids of closed segments: for checks, not O(1)."""
        size = self.segment_blocks
        return {block for block in range(self.num_blocks) if self._closed >> block // size & 1}

    # ---- inside ----

    def _count_of(self, block: int) -> int:
        if not 0 <= block < self.num_blocks:
            raise BlockPoolError(f"block {block} is unknown: ids are 0 to {self.num_blocks - 1}")
        return self.ref_counts[block]

    def _count_referenced(self) -> None:
        self._num_referenced += 1
        if self._num_referenced > self.peak_referenced:
            self.peak_referenced = self._num_referenced

    def _releasable(self, first: int) -> int:
        """The index of the releasable segment that begins with this block."""
        index, offset = divmod(first, self.segment_blocks)
        if offset or not 0 <= index < len(self._free_ids):
            raise BlockPoolError(f"block {first} is not the first of a segment of {self.segment_blocks}")
        if not self._free_ids[index] or len(self._free_ids[index]) != self._segment_size(index):
            raise BlockPoolError(f"segment of block {first} is closed already or has blocks that are not free")
        return index

    def _segment_size(self, index: int) -> int:
        return min(self.segment_blocks, self.num_blocks - index * self.segment_blocks)

    def _open_segment(self) -> int:
        """Its size."""
        index = (self._closed & -self._closed).bit_length() - 1
        first = index * self.segment_blocks
        self._free_ids[index] = list(range(first + self._segment_size(index) - 1, first - 1, -1))
        self._with_free |= 1 << index
        self._closed &= ~(1 << index)
        return len(self._free_ids[index])

    def _evict(self) -> None:
        block, _ = self._cached.popitem(last=False)
        self._kept[block] = 0
        self._free(block)
        self.num_evictions += 1
        self.on_evict(block)

    def _free(self, block: int) -> None:
        index = block // self.segment_blocks
        self._free_ids[index].append(block)
        self._with_free |= 1 << index
