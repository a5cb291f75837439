"""KV bookkeeping of sequences: which blocks they hold, share, copy, seal and give back."""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass

from octavo.engine.block_pool import BlockPool
from octavo.engine.block_table import UNMAPPED, BlockTable, BlockTableRows
from octavo.engine.prefix_cache import PrefixCache, PrefixNode
from octavo.engine.request import Request, Sequence

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """What the prefix cache can serve of a sequence, in every KV group: whole blocks, and then perhaps the first
    slots of one more, which is copied before anything is written behind them."""

    num_tokens: int
    node: PrefixNode | None
    tables: tuple[list[int], ...]
    """Per KV group; UNMAPPED where the next token no longer sees the block"""
    has_tail: bool
    """Whether the last block counts in part only"""
    num_unreferenced: int
    """Blocks of it that are only cached: to adopt them takes as many from what is available"""


NO_HIT = PrefixHit(0, None, (), False, 0)


class KVCacheManager:
    """Keeps the block tables of all sequences over one pool, for KV groups with the given windows.

    A block is written only by the one table that refers to it. A fork shares blocks; the first write to a
    shared block plans a copy, which the next step executes before anything else and in order. So a source may
    even be handed out again within the same step: it is read before any of that step's writes.

    A hit leaves at least one token to compute: a prompt of exactly k cached blocks recomputes its last token, in a
    copy of the k-th block. A block that is in the prefix cache is never written, however few refer to it.
    """

    def __init__(
        self,
        pool: BlockPool,
        prefix_cache: PrefixCache | None,
        block_size: int,
        windows: tuple[int | None, ...],
        max_rows: int,
        max_chunk: int,
    ) -> None:
        self.pool = pool
        self.prefix_cache = prefix_cache
        self.block_size = block_size
        self.windows = windows
        self.rows = BlockTableRows(len(windows), max_rows)
        self.copies: list[tuple[int, int]] = []
        """(source, destination) pairs of the step that is being planned"""
        self._windowed = [(group, window) for group, window in enumerate(windows) if window is not None]
        # Blocks that a windowed table maps at most: what a chunk's first token sees, the chunk, and one for
        # alignment.
        self._most_blocks = [
            NEVER if window is None else -(-(window - 1 + max_chunk) // block_size) + 1 for window in windows
        ]
        if prefix_cache is not None:
            pool.on_evict = prefix_cache.forget

    # ---- how much a request needs ----

    def most_blocks(self, num_prompt: int, num_tokens: int, num_sequences: int) -> int:
        """Blocks of num_sequences sequences of num_tokens computed tokens each, forked after a prompt of
        num_prompt."""
        shared = num_prompt // self.block_size
        length = max(shared, -(-num_tokens // self.block_size))
        forked = shared + num_sequences * (length - shared)
        return sum(min(forked, num_sequences * most) for most in self._most_blocks)

    def blocks_wanted(self, request: Request) -> int:
        """Blocks that a running request's known tokens still need, at most, beyond what it holds."""
        wanted = 0
        for sequence in request.active:
            if len(sequence.token_ids) - sequence.num_computed_tokens > 1:
                wanted += self._wanted(sequence)
        shared = request.num_prompt_tokens // self.block_size
        for sequence in request.pending:
            own = max(1, -(-len(sequence.token_ids) // self.block_size) - shared)
            wanted += sum(min(own, most) for most in self._most_blocks)
        return wanted

    def blocks_to_admit(self, request: Request, hit: PrefixHit) -> int:
        """Blocks that must be available for a waiting request's known tokens, the hit's own included."""
        leader = request.pending[0]
        length = -(-len(leader.token_ids) // self.block_size)
        hit_length = hit.num_tokens // self.block_size
        wanted = hit.num_unreferenced
        for group, most in enumerate(self._most_blocks):
            mapped = 0
            if hit.tables:
                mapped = hit_length - hit.tables[group].count(UNMAPPED)
            wanted += min(length - hit_length, max(0, most - mapped))
        if request.resumes_siblings:
            shared = request.num_prompt_tokens // self.block_size
            for sibling in request.pending[1:]:
                own = -(-len(sibling.token_ids) // self.block_size) - shared
                wanted += sum(min(own, most) for most in self._most_blocks)
        return wanted

    def _wanted(self, sequence: Sequence) -> int:
        length = -(-len(sequence.token_ids) // self.block_size)
        return sum(
            max(0, min(length - len(table.blocks), most - table.num_mapped))
            for table, most in zip(sequence.tables, self._most_blocks, strict=True)
        )

    # ---- prefix cache ----

    def match(self, sequence: Sequence, max_tokens: int, whole_blocks: bool = False) -> PrefixHit:
        """The longest prefix of at most max_tokens tokens, and never all of them, that every KV group can serve; of
        whole blocks only, if asked for."""
        max_tokens = min(max_tokens, len(sequence.token_ids) - 1)
        if self.prefix_cache is None or max_tokens < 1:
            return NO_HIT
        chain = self._chain(sequence, max_tokens // self.block_size)
        length = self._servable(chain)
        node = chain[length - 1] if length else None
        tail, num_tail = (None, 0) if whole_blocks else self._tail(sequence, node, length, max_tokens)
        if length == 0 and tail is None:
            return NO_HIT
        nodes = chain[:length] if tail is None else [*chain[:length], tail]
        tables = []
        for group, window in enumerate(self.windows):
            first = self._first_visible(length * self.block_size, window)
            tables.append([UNMAPPED] * first + [next(iter(node.blocks[group])) for node in nodes[first:]])
        counts = self.pool.ref_counts
        unreferenced = sum(counts[block] == 0 for table in tables for block in table if block != UNMAPPED)
        return PrefixHit(length * self.block_size + num_tail, node, tuple(tables), tail is not None, unreferenced)

    def _tail(
        self, sequence: Sequence, node: PrefixNode | None, length: int, max_tokens: int
    ) -> tuple[PrefixNode | None, int]:
        """The node after the first `length` blocks that begins with most of the sequence's next tokens, less than a
        block of them."""
        assert self.prefix_cache is not None
        start = length * self.block_size
        tokens = sequence.token_ids[start : min(max_tokens, start + self.block_size - 1)]
        parent = node or self.prefix_cache.root(sequence.request.namespace)
        if not tokens or parent is None:
            return None, 0
        return self.prefix_cache.closest(parent, tokens, lambda node: all(node.blocks))

    def _chain(self, sequence: Sequence, limit: int) -> list[PrefixNode]:
        """The known nodes of a sequence's first blocks, as far as full-attention groups have their KV."""
        cache = self.prefix_cache
        assert cache is not None
        node = cache.root(sequence.request.namespace)
        chain: list[PrefixNode] = []
        full = [group for group, window in enumerate(self.windows) if window is None]
        while node is not None and len(chain) < limit:
            index = len(chain)
            start = index * self.block_size
            tokens = tuple(sequence.token_ids[start : start + self.block_size])
            node = cache.find(node, tokens, self.digest(sequence, index, tokens))
            if node is None or not all(node.blocks[group] for group in full):
                break
            chain.append(node)
        return chain

    def _servable(self, chain: list[PrefixNode]) -> int:
        """The greatest number of blocks of the chain of which every windowed group has what the next token
        sees."""
        if not self._windowed:
            return len(chain)
        longest = 0
        runs = dict.fromkeys((group for group, _ in self._windowed), 0)
        for length, node in enumerate(chain, 1):
            servable = True
            for group, window in self._windowed:
                runs[group] = runs[group] + 1 if node.blocks[group] else 0
                servable &= runs[group] >= length - self._first_visible(length * self.block_size, window)
            if servable:
                longest = length
        return longest

    def digest(self, sequence: Sequence, index: int, tokens: tuple[int, ...]) -> bytes:
        """The chain digest of block `index`; those before it are known."""
        assert self.prefix_cache is not None
        digests = sequence.digests
        if index == len(digests):
            parent = digests[-1] if digests else self.prefix_cache.root_digest(sequence.request.namespace)
            digests.append(self.prefix_cache.digest(parent, tokens))
        return digests[index]

    def adopt(self, sequence: Sequence, hit: PrefixHit) -> None:
        """Gives a sequence the blocks of a hit (none at all where it is empty) in place of those that it
        holds."""
        for table in hit.tables:
            for block in table:
                if block != UNMAPPED:
                    self.pool.retain(block)
        node = hit.node
        if self.prefix_cache is not None:
            if node is None:
                node = self.prefix_cache.hold_root(sequence.request.namespace)
            else:
                self.prefix_cache.hold(node)
        self.release(sequence)
        tables = hit.tables or tuple([] for _ in self.windows)
        sequence.tables = tuple(BlockTable(blocks, blocks.count(UNMAPPED)) for blocks in tables)
        sequence.node = node
        sequence.num_computed_tokens = sequence.writable_end = hit.num_tokens
        sequence.num_sealed = hit.num_tokens // self.block_size
        sequence.next_seal = NEVER if self.prefix_cache is None else (sequence.num_sealed + 1) * self.block_size
        self.rows.change(sequence, 0)

    def seal(self, sequence: Sequence) -> None:
        """Makes a sequence's full, computed blocks findable."""
        cache, size = self.prefix_cache, self.block_size
        if cache is None:
            return
        while (sequence.num_sealed + 1) * size <= sequence.num_computed_tokens:
            index = sequence.num_sealed
            tokens = tuple(sequence.token_ids[index * size : (index + 1) * size])
            assert sequence.node is not None
            node = cache.extend(sequence.node, tokens, self.digest(sequence, index, tokens))
            sequence.node = node
            sequence.num_sealed = index + 1
            for group, table in enumerate(sequence.tables):
                if index >= table.first_mapped:
                    block = table.blocks[index]
                    cache.register(node, group, block)
                    self.pool.keep(block)
        sequence.next_seal = (sequence.num_sealed + 1) * size

    def keep_tail(self, sequence: Sequence) -> None:
        """Makes the computed slots of a sequence's tail block findable, as it is about to give it back.

        Not while copies are planned: its content might be one of them, and the step might fail.
        """
        cache, size, node = self.prefix_cache, self.block_size, sequence.node
        index, rest = divmod(sequence.num_computed_tokens, size)
        if cache is None or node is None or not rest or self.copies or index != sequence.num_sealed:
            return
        blocks = [table.blocks[index] for table in sequence.tables]
        if any(self.pool.ref_counts[block] > 1 or self.pool.is_kept(block) for block in blocks):
            return
        tokens = tuple(sequence.token_ids[index * size : index * size + rest])
        if cache.closest(node, tokens, lambda node: all(node.blocks))[1] == rest:
            return  # it is there already
        sequence.node = cache.extend(node, tokens, cache.digest(node.digest, tokens))
        for group, block in enumerate(blocks):
            cache.register(sequence.node, group, block)
            self.pool.keep(block)

    # ---- blocks of a sequence ----

    def reserve(self, sequence: Sequence, end: int) -> bool:
        """Maps private blocks for positions num_computed_tokens to end - 1: all of them, or none and False.

        Blocks that have fallen behind a window are released first; a tail block that is shared, or in the prefix
        cache, becomes a private copy.
        """
        pool = self.pool
        self._release_behind_windows(sequence)
        length = -(-end // self.block_size)
        tail = sequence.num_computed_tokens // self.block_size
        needed = 0
        for table in sequence.tables:
            needed += max(0, length - len(table.blocks))
            if tail < len(table.blocks) and not self._is_private(table.blocks[tail]):
                needed += 1
        if needed > pool.num_available:
            return False
        for table in sequence.tables:
            blocks = table.blocks
            if tail < len(blocks) and not self._is_private(blocks[tail]):
                blocks[tail] = self._copy(blocks[tail])
            while len(blocks) < length:
                blocks.append(pool.allocate())
        sequence.writable_end = length * self.block_size
        self.rows.change(sequence, tail)
        return True

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Gives a child that holds no blocks the first num_tokens tokens of its parent, all of them shared.

        Their KV is computed, or will be in the step that is being planned if no block of it is then partly
        filled. Raises ValueError where the child would see blocks that the parent has released behind a
        window.
        """
        size = self.block_size
        length = -(-num_tokens // size)
        if child.tables:
            raise ValueError("a sequence that holds blocks cannot become a fork")
        for table, window in zip(parent.tables, self.windows, strict=True):
            if length > len(table.blocks) or self._first_visible(num_tokens, window) < table.first_mapped:
                raise ValueError(f"the parent does not hold the blocks that a fork at {num_tokens} tokens sees")
        tables = []
        for table in parent.tables:
            blocks = table.blocks[:length]
            for block in blocks[table.first_mapped :]:
                self.pool.retain(block)
            tables.append(BlockTable(blocks, min(table.first_mapped, length)))
        child.tables = tuple(tables)
        child.num_computed_tokens = child.writable_end = num_tokens
        if num_tokens % size and parent.num_computed_tokens // size == num_tokens // size:
            parent.writable_end = parent.num_computed_tokens
        child.num_sealed = min(parent.num_sealed, num_tokens // size)
        child.digests = parent.digests[: num_tokens // size]
        child.next_seal = NEVER if self.prefix_cache is None else (child.num_sealed + 1) * size
        self.rows.change(child, 0)
        self._share_node(parent, child)

    def release(self, sequence: Sequence) -> None:
        """Gives all blocks of a sequence back, tail first, so that the tail is evicted first. Harmless if it
        has none."""
        tables = sequence.tables
        for index in range(max((len(table.blocks) for table in tables), default=0) - 1, -1, -1):
            for table in tables:
                if table.first_mapped <= index < len(table.blocks):
                    self.pool.release(table.blocks[index])
        if sequence.node is not None:
            assert self.prefix_cache is not None
            self.prefix_cache.drop(sequence.node)
        self.rows.free(sequence)
        sequence.tables = ()
        sequence.node = None
        sequence.num_computed_tokens = sequence.writable_end = sequence.num_sealed = 0

    def take_copies(self) -> list[tuple[int, int]]:
        """The copies planned since the last call, in order."""
        copies, self.copies = self.copies, []
        return copies

    def used_and_wasted_slots(self, sequences: Series[Sequence]) -> tuple[int, int]:
        """Slots of referenced blocks that hold a token's KV, and those that do not; between steps."""
        size = self.block_size
        filled: dict[int, int] = {}
        for sequence in sequences:
            rest = sequence.num_computed_tokens % size
            if rest:
                for table in sequence.tables:
                    block = table.blocks[sequence.num_computed_tokens // size]
                    if not self.pool.is_kept(block):
                        filled[block] = max(rest, filled.get(block, 0))
        wasted = size * len(filled) - sum(filled.values())
        return self.pool.num_referenced * size - wasted, wasted

    # ---- inside ----

    def _first_visible(self, position: int, window: int | None) -> int:
        """The first logical block that a token at `position` sees."""
        return 0 if window is None else max(0, position - window + 1) // self.block_size

    def _release_behind_windows(self, sequence: Sequence) -> None:
        for group, window in self._windowed:
            table = sequence.tables[group]
            first = min(self._first_visible(sequence.num_computed_tokens, window), len(table.blocks))
            if first > table.first_mapped:
                self.rows.change(sequence, table.first_mapped)
                for index in range(table.first_mapped, first):
                    self.pool.release(table.blocks[index])
                    table.blocks[index] = UNMAPPED
                table.first_mapped = first

    def _is_private(self, block: int) -> bool:
        return self.pool.ref_counts[block] == 1 and not self.pool.is_kept(block)

    def _copy(self, source: int) -> int:
        destination = self.pool.allocate()
        self.copies.append((source, destination))
        self.pool.release(source)
        return destination

    def _share_node(self, parent: Sequence, child: Sequence) -> None:
        """The child's node is the parent's, or as far above it as the child has fewer sealed blocks."""
        if self.prefix_cache is None:
            return
        node = parent.node
        for _ in range(parent.num_sealed - child.num_sealed):
            assert node is not None
            node = node.parent
        assert node is not None
        self.prefix_cache.hold(node)
        child.node = node
