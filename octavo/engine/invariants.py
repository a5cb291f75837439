"""Checks that the bookkeeping of an engine is whole. Slow and thorough: for tests and for doubt."""

from __future__ import annotations

from collections import Counter

import numpy as np

from octavo.engine.block_table import UNMAPPED
from octavo.engine.engine import Engine
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request, RequestStatus, Sequence
from octavo.engine.scheduler import Scheduler


class InvariantError(AssertionError):
    """What does not hold, in words."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantError(message)


def check_invariants(engine: Engine) -> None:
    """Raises InvariantError unless, between two steps:

    free + cached + referenced blocks = total, and each block is in one state only;
    reference counts = occurrences in tables;
    every registered block is kept, and holds the tokens that its node says, by the tables that refer to it;
    nodes are findable, unique, and used as often as they count;
    positions that may be written lie in private blocks that are not in the prefix cache;
    beams are the sequences of their request, no more of them than its width, and stand at the same length;
    the arrays that steps are built from equal the tables.
    """
    sequences = check_requests(engine.scheduler)
    check_pool(engine.manager, sequences)
    check_prefix_cache(engine.manager, sequences)
    for sequence in sequences:
        check_tables(engine.manager, sequence)


def check_requests(scheduler: Scheduler) -> list[Sequence]:
    """Requests are where their status says. Returns the sequences that may hold blocks."""
    for request in scheduler.waiting:
        _require(request.status is RequestStatus.WAITING, f"{request.request_id} waits as {request.status}")
        _require(not request.active and bool(request.pending), f"{request.request_id} waits with active sequences")
    sequences: list[Sequence] = []
    for request in scheduler.running:
        _require(request.status is RequestStatus.RUNNING, f"{request.request_id} runs as {request.status}")
        _require(bool(request.active), f"{request.request_id} runs with no active sequence")
        sequences += request.active
    for request in [*scheduler.waiting, *scheduler.running]:
        for sequence in request.pending:
            _require(not sequence.tables and sequence.row < 0, "a pending sequence holds blocks")
        unfinished = [sequence for sequence in request.sequences if not sequence.finished]
        _require(
            {id(seq) for seq in unfinished} == {id(seq) for seq in request.active + request.pending}
            and len(unfinished) == request.num_unfinished,
            f"{request.request_id} has lost or doubled a sequence",
        )
        check_beams(request)
    arrivals = [request.arrival for request in scheduler.running]
    _require(arrivals == sorted(arrivals), "running requests are not in order of arrival")
    arrivals = [request.arrival for request in scheduler.waiting]
    _require(arrivals == sorted(arrivals), "waiting requests are not in order of arrival")
    return sequences


def check_beams(request: Request) -> None:
    """The search of a request, if it has one, against its sequences."""
    search = request.beam_search
    if search is None:
        return
    beams = [beam.sequence for beam in search.beams]
    _require({id(beam) for beam in beams} == {id(seq) for seq in request.sequences}, "a beam has no sequence")
    _require(len({beam.index for beam in beams}) == len(beams) <= search.width, "there are too many beams")
    _require(all(0 <= beam.index < search.width for beam in beams), "a beam's index is beyond the width")
    _require(len({len(beam.token_ids) for beam in beams}) == 1, "beams differ in length")
    _require(len(search.finished) <= search.width, "too many finished beams are kept")


def check_pool(manager: KVCacheManager, sequences: list[Sequence]) -> None:
    """Counts, states and references of the pool."""
    pool = manager.pool
    references = Counter(
        block for sequence in sequences for table in sequence.tables for block in table.blocks[table.first_mapped :]
    )
    _require(all(0 <= block < pool.num_blocks for block in references), "a table has an unknown block")
    counts = {block: count for block, count in enumerate(pool.ref_counts) if count}
    _require(counts == dict(references), f"reference counts {counts} are not the occurrences {dict(references)}")
    free, cached = pool.snapshot()
    closed = pool.closed_blocks()
    _require(len(set(cached)) == len(cached) == pool.num_cached, "a block is cached twice")
    _require(not closed & free and not (closed | free) & set(cached), "a block is in two states")
    _require(not (closed | free | set(cached)) & counts.keys(), "a referenced block is free or cached")
    _require(len(closed) + len(free) + len(cached) + len(counts) == pool.num_blocks, "a block is lost")
    _require(pool.num_free == len(closed) + len(free), "the free count is wrong")
    _require(pool.num_referenced == len(counts), "the referenced count is wrong")
    _require(pool.num_shared == sum(count > 1 for count in counts.values()), "the shared count is wrong")
    _require(pool.num_committed == pool.num_blocks - len(closed), "the committed count is wrong")
    registered = set() if manager.prefix_cache is None else set(manager.prefix_cache.registered())
    kept = {block for block in range(pool.num_blocks) if pool.is_kept(block)}
    _require(kept == registered, f"kept blocks {kept} are not the registered ones {registered}")
    _require(set(cached) <= registered, "a cached block cannot be found")


def check_prefix_cache(manager: KVCacheManager, sequences: list[Sequence]) -> None:
    """Nodes, their uses, and the content of registered blocks."""
    cache = manager.prefix_cache
    if cache is None:
        return
    nodes, roots = cache.nodes(), cache.roots()
    uses = Counter(id(node.parent) for node in nodes)
    uses.update(id(sequence.node) for sequence in sequences)
    seen = set()
    for node in nodes:
        parent = node.parent
        assert parent is not None
        for group, blocks in enumerate(node.blocks):
            uses[id(node)] += len(blocks)
            for block in blocks:
                _require(cache.registered().get(block) == (node, group), f"block {block} is in another node")
        _require(0 < len(node.tokens) <= manager.block_size, "a node is not a block or a part of one")
        _require(parent.parent is None or len(parent.tokens) == manager.block_size, "a node comes after half a block")
        _require(node in parent.children[node.tokens[0]], "a node is not among its parent's children")
        _require(node.scores is None or len(node.scores) == len(node.tokens), "a node has too few logprobs")
        _require(node.digest == cache.digest(parent.digest, node.tokens), "a node's digest is not its content's")
        _require(cache.find(parent, node.tokens, node.digest) is node, "a node cannot be found, or is there twice")
        seen.add(id(node))
    _require(sum(len(each) for node in [*nodes, *roots] for each in node.children.values()) == len(nodes),
             "a node that is gone is still a child")  # fmt: skip
    for node in [*nodes, *roots]:
        _require(node.uses == uses[id(node)] > 0, f"a node counts {node.uses} uses and has {uses[id(node)]}")
    for block, (node, _) in cache.registered().items():
        _require(id(node) in seen, f"block {block} belongs to a node that is gone")


def check_tables(manager: KVCacheManager, sequence: Sequence) -> None:
    """One sequence's tables against its tokens, the prefix cache and the arrays of steps."""
    size, counts = manager.block_size, manager.pool.ref_counts
    computed = sequence.num_computed_tokens
    length = -(-computed // size)
    _require(computed < len(sequence.token_ids), "all tokens are computed: nothing is left to sample from")
    _require(len(sequence.tables) == len(manager.windows), "a table is missing")
    cache = manager.prefix_cache
    registered = {} if cache is None else cache.registered()
    for group, (table, window) in enumerate(zip(sequence.tables, manager.windows, strict=True)):
        visible = 0 if window is None else max(0, computed - window + 1) // size
        _require(length <= len(table.blocks), "computed tokens have no block")
        _require(table.first_mapped <= visible, "a visible block is released")
        _require(
            table.blocks[: table.first_mapped] == [UNMAPPED] * table.first_mapped,
            "a released block is mapped",
        )
        _require(UNMAPPED not in table.blocks[table.first_mapped :], "a block in the middle is not mapped")
        for index in range(table.first_mapped, len(table.blocks)):
            block = table.blocks[index]
            known = registered.get(block)
            if index < sequence.num_sealed:
                tokens = tuple(sequence.token_ids[index * size : (index + 1) * size])
                _require(known is not None and known[1] == group, f"sealed block {block} is not registered")
                _require(known is not None and known[0].tokens == tokens, f"block {block} has other tokens")
            if computed // size <= index and sequence.writable_end > index * size and sequence.writable_end > computed:
                _require(counts[block] == 1 and known is None, f"block {block} may be written but is not private")
    _check_row(manager, sequence)


def _check_row(manager: KVCacheManager, sequence: Sequence) -> None:
    rows = manager.rows.written(sequence)
    if rows is None:
        return
    for row, table in zip(rows, sequence.tables, strict=True):
        expected = table.blocks + [UNMAPPED] * (len(row) - len(table.blocks))
        _require(bool(np.array_equal(row, expected)), "a row is not its table")
