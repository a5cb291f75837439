"""Arenas hand out ranges that do not overlap, and find everything again; reservations by policy."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.bench.contiguous import BuddyArena, FirstFitArena, Policy, reserved_length


@pytest.mark.parametrize(("policy", "expected"), [("max", 2048), ("pow2", 10 + 32), ("oracle", 10 + 25)])
def test_reservations(policy: Policy, expected: int) -> None:
    assert reserved_length(policy, 10, 25, 2048) == expected


def test_a_guess_is_exact_at_powers_of_two_and_never_above_the_limit() -> None:
    assert reserved_length("pow2", 10, 32, 2048) == 42
    assert reserved_length("pow2", 10, 1, 2048) == 11
    assert reserved_length("pow2", 1000, 1025, 2048) == 2048


@pytest.mark.parametrize("make", [BuddyArena, FirstFitArena])
@pytest.mark.parametrize("size", [1, 64, 981])
def test_a_storm_leaves_the_arena_whole(make: type[BuddyArena | FirstFitArena], size: int) -> None:
    rng = np.random.default_rng(size)
    arena, taken = make(size), {}
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            start = list(taken)[int(rng.integers(len(taken)))]
            arena.free(start)
            del taken[start]
            continue
        length = int(rng.integers(1, max(2, size // 4)))
        start = arena.allocate(length)
        if start is not None:
            assert start >= 0 and start + length <= size
            assert all(start + length <= other or other + taken[other] <= start for other in taken)
            taken[start] = length
    for start in taken:
        arena.free(start)
    largest = size if make is FirstFitArena else 1 << (size.bit_length() - 1)
    assert arena.allocate(largest) is not None


def test_buddies_round_to_powers_of_two_and_first_fit_does_not() -> None:
    buddy, first_fit = BuddyArena(64), FirstFitArena(64)
    assert [buddy.allocate(17), buddy.allocate(17), buddy.allocate(1)] == [0, 32, None]
    assert [first_fit.allocate(17), first_fit.allocate(17), first_fit.allocate(17)] == [0, 17, 34]
    first_fit.free(17)
    assert [first_fit.allocate(18), first_fit.allocate(5)] == [None, 17]
