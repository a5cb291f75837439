import random

import pytest

from octavo.engine.block_pool import BlockPool, BlockPoolError


def test_a_block_goes_from_free_to_referenced_to_free():
    pool = BlockPool(3)
    block = pool.allocate()
    assert (pool.num_free, pool.num_cached, pool.num_referenced) == (2, 0, 1)
    pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_referenced) == (3, 0, 0)
    assert pool.peak_referenced == 1


def test_a_kept_block_becomes_cached_and_can_be_taken_back():
    pool = BlockPool(3)
    block = pool.allocate()
    pool.keep(block)
    pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_referenced) == (2, 1, 0)
    pool.retain(block)
    assert pool.ref_counts[block] == 1 and pool.is_kept(block) and pool.num_cached == 0


def test_shared_blocks_are_counted():
    pool = BlockPool(3)
    block = pool.allocate()
    pool.retain(block)
    pool.retain(block)
    assert pool.num_shared == 1
    pool.release(block)
    assert pool.num_shared == 1
    pool.release(block)
    assert pool.num_shared == 0


def test_segments_open_one_by_one_and_before_anything_is_evicted():
    evicted = []
    pool = BlockPool(7, segment_blocks=3)
    pool.on_evict = evicted.append
    assert pool.num_committed == 0
    taken = [pool.allocate() for _ in range(3)]
    assert taken == [0, 1, 2] and pool.num_committed == 3
    for block in reversed(taken):
        pool.keep(block)
        pool.release(block)
    more = [pool.allocate() for _ in range(4)]
    assert more == [3, 4, 5, 6] and pool.num_committed == 7 and not evicted
    assert pool.allocate() == 2 and evicted == [2], "least recently used first"


def test_free_blocks_of_low_segments_come_first_so_that_high_ones_drain():
    pool = BlockPool(9, segment_blocks=3)
    taken = [pool.allocate() for _ in range(9)]
    for block in (8, 7, 6, 1):
        pool.release(taken[block])
    assert pool.allocate() == 1
    assert pool.releasable_segments() == [(6, 3)]


def test_upcoming_blocks_are_those_that_are_allocated_next():
    pool = BlockPool(9, segment_blocks=3)
    taken = [pool.allocate() for _ in range(4)]
    pool.release(taken[1])
    assert len(pool.upcoming(3)) == 3 and pool.num_committed == 6
    upcoming = pool.upcoming(4)
    assert pool.num_committed == 9 and pool.num_free == 6
    assert [pool.allocate() for _ in range(4)] == upcoming
    assert len(pool.upcoming(100)) == 2


def test_an_ordered_segment_hands_its_blocks_out_in_order():
    pool = BlockPool(6, segment_blocks=3)
    taken = [pool.allocate() for _ in range(3)]
    for block in (taken[0], taken[2], taken[1]):
        pool.release(block)
    pool.order_segment(0)
    assert pool.upcoming(3) == [0, 1, 2]
    with pytest.raises(BlockPoolError):
        pool.order_segment(3)


def test_a_closed_segment_opens_again_when_needed():
    pool = BlockPool(5, segment_blocks=3)
    taken = [pool.allocate() for _ in range(5)]
    for block in taken[3:]:
        pool.release(block)
    assert pool.releasable_segments() == [(3, 2)]
    pool.close_segment(3)
    assert pool.num_committed == 3 and pool.num_free == 2 and pool.releasable_segments() == []
    assert pool.allocate() == 3
    with pytest.raises(BlockPoolError, match="closed already or has blocks"):
        pool.close_segment(3)


def test_misuse_raises_and_changes_nothing():
    pool = BlockPool(2)
    block = pool.allocate()
    with pytest.raises(BlockPoolError, match="is free"):
        pool.retain(1 - block)
    with pytest.raises(BlockPoolError, match="released more often"):
        pool.release(1 - block)
    for unknown in (-1, 2):
        for operation in (pool.retain, pool.release, pool.keep, pool.is_kept):
            with pytest.raises(BlockPoolError, match=f"block {unknown} is unknown"):
                operation(unknown)
    with pytest.raises(BlockPoolError, match="not referenced"):
        pool.keep(1 - block)
    with pytest.raises(BlockPoolError, match="not the first"):
        pool.close_segment(1)
    pool.allocate()
    with pytest.raises(BlockPoolError, match="all 2 blocks"):
        pool.allocate()
    assert pool.num_referenced == 2 and pool.ref_counts == [1, 1]


def test_random_operations_agree_with_a_reference_model():
    """F33: no count below 0, no block in two states, cached blocks go in order and only then."""
    rng = random.Random(1)
    pool = BlockPool(24, segment_blocks=5)
    counts, kept, cached = {}, set(), []
    evicted = []
    pool.on_evict = evicted.append
    for _ in range(20_000):
        action = rng.random()
        live = list(counts)
        if action < 0.35 and len(live) < 24:
            no_free = len(counts) + len(cached) == 24
            block = pool.allocate()
            if no_free:
                assert evicted == [block] == [cached.pop(0)]
                kept.discard(block)
            assert block not in counts and block not in cached and not pool.is_kept(block)
            counts[block] = 1
            evicted.clear()
        elif action < 0.55 and live:
            block = rng.choice(live)
            pool.retain(block)
            counts[block] += 1
        elif action < 0.6 and cached:
            block = rng.choice(cached)
            pool.retain(block)
            cached.remove(block)
            counts[block] = 1
        elif action < 0.7 and live:
            block = rng.choice(live)
            pool.keep(block)
            kept.add(block)
        elif action < 0.98 and live:
            block = rng.choice(live)
            pool.release(block)
            counts[block] -= 1
            if not counts[block]:
                del counts[block]
                if block in kept:
                    cached.append(block)
        else:
            for first, count in pool.releasable_segments():
                assert not any(b in counts or b in cached for b in range(first, first + count))
                pool.close_segment(first)
        assert not evicted
        assert pool.num_cached == len(cached) and pool.num_referenced == len(counts)
        assert pool.num_free + pool.num_cached + pool.num_referenced == 24
        assert pool.num_shared == sum(count > 1 for count in counts.values())
    free, order = pool.snapshot()
    assert order == cached and free | pool.closed_blocks() == set(range(24)) - counts.keys() - set(cached)
