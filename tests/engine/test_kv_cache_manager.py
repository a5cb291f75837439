import pytest
from engine_fakes import Params

from octavo.engine.block_pool import BlockPool
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.prefix_cache import PrefixCache
from octavo.engine.request import Request, Sequence


def make(windows=(None,), num_blocks=32, block_size=4, caching=True):
    cache = PrefixCache(len(windows)) if caching else None
    return KVCacheManager(BlockPool(num_blocks, 8), cache, block_size, windows, max_rows=8, max_chunk=64)


def sequence(tokens, index=0, request=None):
    request = request or Request("r", list(tokens), Params())
    result = Sequence(request, index, None, frozenset(), 0, 1000)
    result.token_ids = list(tokens)
    return result


def start(manager, tokens):
    """A sequence that has adopted what the cache has."""
    seq = sequence(tokens)
    manager.adopt(seq, manager.match(seq, len(seq.token_ids)))
    return seq


def compute(manager, seq, end=None):
    """Computes tokens up to `end` (all but the last one by default) and seals."""
    end = len(seq.token_ids) - 1 if end is None else end
    assert manager.reserve(seq, end)
    seq.num_computed_tokens = end
    manager.seal(seq)


def test_a_hit_is_computed_and_leaves_one_token():
    """F28, F32: whole blocks, then the beginning of one more."""
    manager = make()
    first = start(manager, range(13))
    assert manager.reserve(first, 12)
    assert manager.match(sequence(range(13)), 99).num_tokens == 0, "mapped, but not computed"
    compute(manager, first, 12)
    for length, expected, whole in [
        (12, 11, 8),
        (13, 12, 12),
        (8, 7, 4),
        (4, 3, 0),
        (5, 4, 4),
        (40, 12, 12),
        (1, 0, 0),
    ]:
        assert manager.match(sequence(range(length)), 99).num_tokens == expected
        assert manager.match(sequence(range(length)), 99, whole_blocks=True).num_tokens == whole
    assert manager.match(sequence(range(13)), 8).num_tokens == 8
    assert manager.match(sequence(range(13)), 7).num_tokens == 7
    assert manager.match(sequence([0, 1, 2, 3, 9, 9, 9, 9, 8, 9, 10, 11, 12]), 99).num_tokens == 4
    assert manager.match(sequence([0, 1, 2, 3, 4, 5, 9, 9, 8, 9, 10, 11, 12]), 99).num_tokens == 6


def test_a_partial_hit_is_copied_before_it_is_written_even_if_nobody_else_refers_to_it():
    for running in (True, False):
        manager = make()
        first = start(manager, range(13))
        compute(manager, first, 12)
        old = first.tables[0].blocks.copy()
        if not running:
            manager.release(first)
        second = start(manager, [0, 1, 2, 3, 4, 5, 9, 9, 9])
        assert second.num_computed_tokens == 6 and second.num_sealed == 1 and second.tables[0].blocks == old[:2]
        assert manager.reserve(second, 8)
        ((source, destination),) = manager.take_copies()
        assert source == old[1] and second.tables[0].blocks == [old[0], destination] and destination not in old
        second.num_computed_tokens = 8
        manager.seal(second)
        assert manager.match(sequence(range(13)), 99).num_tokens == 12, "the source is as it was"
        manager.release(second)


def test_the_tail_of_a_sequence_that_ends_is_found_as_far_as_it_was_computed():
    manager = make()
    seq = start(manager, range(12))
    compute(manager, seq, 10)
    manager.keep_tail(seq)
    manager.release(seq)
    assert manager.pool.num_cached == 3
    for length, expected in [(10, 9), (11, 10), (12, 10)]:
        assert manager.match(sequence(range(length)), 99).num_tokens == expected
    again = start(manager, range(12))
    manager.keep_tail(again)
    manager.release(again)
    assert manager.pool.num_cached == 3, "the same tail is kept once"
    manager.pool.allocate()
    assert manager.pool.num_free == 28
    manager.pool.evict_all()
    assert manager.prefix_cache.num_nodes == manager.prefix_cache.num_roots == 0


def test_a_tail_that_others_share_or_that_a_copy_will_fill_is_not_kept():
    manager = make()
    parent = start(manager, range(11))
    compute(manager, parent, 10)
    child = sequence(range(11), 1, parent.request)
    manager.fork(parent, child, 10)
    manager.keep_tail(parent)
    assert manager.reserve(parent, 11) and manager.copies
    manager.keep_tail(parent)
    assert len(manager.prefix_cache) == 2
    manager.take_copies()
    manager.keep_tail(parent)
    assert len(manager.prefix_cache) == 3


def test_released_blocks_are_hit_until_evicted_tail_first():
    manager = make(num_blocks=4)
    seq = start(manager, range(17))
    compute(manager, seq, 16)
    manager.release(seq)
    assert manager.pool.num_cached == 4
    for expected in (16, 12, 8, 4, 0):
        assert manager.match(sequence(range(17)), 99).num_tokens == expected
        if expected:
            manager.pool.allocate()
    assert manager.prefix_cache.num_nodes == manager.prefix_cache.num_roots == 0


def test_a_fork_shares_everything_and_copies_only_the_tail_at_the_first_write():
    manager = make()
    parent = start(manager, range(11))
    compute(manager, parent, 10)
    child = sequence(range(11), 1, parent.request)
    manager.fork(parent, child, 10)
    assert manager.pool.num_shared == manager.pool.num_referenced == 3 and manager.take_copies() == []
    old = parent.tables[0].blocks.copy()
    assert manager.reserve(parent, 11)
    assert manager.take_copies() == [(old[2], parent.tables[0].blocks[2])]
    assert parent.tables[0].blocks[:2] == old[:2] and child.tables[0].blocks == old
    assert manager.reserve(child, 11), "the last one writes in place"
    assert manager.take_copies() == [] and child.tables[0].blocks == old
    assert manager.pool.num_referenced == 4 and manager.pool.num_shared == 2
    manager.release(parent)
    manager.release(child)
    assert manager.pool.num_referenced == 0


def test_a_fork_at_a_block_boundary_copies_nothing():
    manager = make()
    parent = start(manager, range(9))
    compute(manager, parent, 8)
    children = [sequence(range(9), i, parent.request) for i in (1, 2)]
    for child in children:
        manager.fork(parent, child, 8)
    for seq in (parent, *children):
        assert manager.reserve(seq, 9)
    assert manager.take_copies() == [] and manager.pool.num_referenced == 5


def test_a_copy_that_does_not_fit_changes_nothing():
    manager = make(num_blocks=2)
    parent = start(manager, range(7))
    compute(manager, parent, 6)
    child = sequence(range(7), 1, parent.request)
    manager.fork(parent, child, 6)
    before = parent.tables[0].blocks.copy()
    assert not manager.reserve(parent, 7)
    assert parent.tables[0].blocks == before and manager.take_copies() == []
    manager.release(child)
    assert manager.reserve(parent, 7) and parent.tables[0].blocks == before


def test_a_fork_below_its_parent_shares_the_prefix_only():
    manager = make()
    parent = start(manager, range(18))
    compute(manager, parent, 16)
    child = sequence(range(6), 1, parent.request)
    manager.fork(parent, child, 4)
    assert child.tables[0].blocks == parent.tables[0].blocks[:1]
    assert child.num_sealed == 1 and child.node is parent.node.parent.parent.parent
    manager.release(parent)
    compute(manager, child, 5)
    manager.release(child)
    assert manager.prefix_cache.num_nodes == 4


def test_blocks_behind_a_window_are_released_once_and_stay_in_the_cache():
    """F64: a window of 5 at block size 4."""
    manager = make(windows=(None, 5))
    released = []
    release = manager.pool.release
    manager.pool.release = lambda block: (released.append(block), release(block))
    seq = start(manager, range(60))
    for end in range(1, 41):
        compute(manager, seq, end)
    windowed = seq.tables[1]
    assert windowed.blocks[:8] == [-1] * 8 and windowed.first_mapped == 8, "position 39 sees 35 and later"
    assert len(released) == len(set(released)) == 8
    assert seq.tables[0].first_mapped == 0 and manager.pool.num_cached == 8
    manager.release(seq)
    assert len(released) == 20 and manager.pool.num_referenced == 0


def test_a_hit_needs_of_a_windowed_group_only_what_the_next_token_sees():
    manager = make(windows=(None, 5), num_blocks=64)
    seq = start(manager, range(41))
    for end in range(4, 41, 4):
        compute(manager, seq, end)
    manager.release(seq)
    hit = manager.match(sequence(range(41)), 99)
    assert hit.num_tokens == 40 and hit.tables[1][:9] == [-1] * 9 and hit.tables[1][9] >= 0
    assert manager.match(sequence(range(30)), 99).num_tokens == 29
    # The windowed group loses the block that 28 tokens need, and all that was released before it.
    cache, pool = manager.prefix_cache, manager.pool
    block = next(b for b, (node, group) in cache.registered().items() if group == 1 and node.tokens == (24, 25, 26, 27))
    while block not in pool.snapshot()[0] and pool.is_kept(block):
        pool._evict()
    for length, expected in [(29, 0), (41, 40)]:
        assert manager.match(sequence(range(length)), 99, whole_blocks=True).num_tokens == expected


def test_windowed_layers_alone_keep_their_chain():
    manager = make(windows=(3,))
    seq = start(manager, range(30))
    compute(manager, seq, 12)
    compute(manager, seq, 28)
    assert seq.tables[0].blocks[:2] == [-1, -1]
    manager.release(seq)
    assert manager.match(sequence(range(29)), 99).num_tokens == 28


def test_a_fork_that_would_see_released_blocks_is_refused():
    manager = make(windows=(4,))
    parent = start(manager, range(30))
    compute(manager, parent, 20)
    assert manager.reserve(parent, 24)
    with pytest.raises(ValueError, match="does not hold the blocks"):
        manager.fork(parent, sequence(range(5)), 4)
    with pytest.raises(ValueError, match="cannot become a fork"):
        manager.fork(parent, parent, 20)


def test_most_blocks_counts_shared_prompts_once_and_windows_by_what_they_see():
    manager = make(windows=(None,), block_size=4)
    assert manager.most_blocks(10, 10, 1) == 3
    assert manager.most_blocks(10, 13, 3) == 2 + 3 * 2
    manager = make(windows=(None, 5), block_size=4)  # chunks of 64: at most 18 blocks of the windowed group
    assert manager.most_blocks(10, 1000, 1) == 250 + 18
    assert manager.most_blocks(400, 404, 3) == 103 + 3 * 18


def test_no_cache_seals_and_finds_nothing():
    manager = make(caching=False)
    seq = start(manager, range(20))
    compute(manager, seq)
    manager.release(seq)
    assert manager.pool.num_free == 32 and manager.match(sequence(range(20)), 99).num_tokens == 0
