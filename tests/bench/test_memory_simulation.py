"""The simulation: its books balance, and it reproduces the paper's ordering."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octavo.bench.lengths import SHAREGPT, Trace
from octavo.bench.memory_simulation import (
    POOL_SLOTS,
    Paged,
    Simulation,
    SimulationRow,
    contiguous_allocators,
    simulate,
)


@pytest.fixture(scope="module")
def rows() -> dict[str, SimulationRow]:
    allocators = [*contiguous_allocators(), Paged(16)]
    return {each.name: simulate(SHAREGPT, each, 300, seed=0) for each in allocators}


def test_shares_add_up(rows: dict[str, SimulationRow]) -> None:
    for row in rows.values():
        parts = (row.tokens_share, row.reserved_share, row.internal_share, row.external_share)
        assert sum(parts) == pytest.approx(1.0)
        assert min(parts) >= 0


def test_the_ordering_of_the_paper(rows: dict[str, SimulationRow]) -> None:
    order = ["contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged"]
    for better, worse in zip(order[1:], order, strict=False):
        assert rows[better].tokens_share > rows[worse].tokens_share
        assert rows[better].mean_batch > rows[worse].mean_batch
    assert rows["paged"].tokens_share >= 0.96
    assert rows["contiguous-max"].mean_batch == pytest.approx(7.0, abs=0.05)
    assert rows["contiguous-max"].tokens_share < 0.25
    assert rows["contiguous-oracle"].internal_share < 0.01
    assert rows["contiguous-oracle"].tokens_share < rows["contiguous-oracle, first fit"].tokens_share < 0.6


def test_smaller_blocks_hold_more_tokens() -> None:
    shares = [simulate(SHAREGPT, Paged(size), 200, seed=1).tokens_share for size in (1, 32, 256)]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_jumps_count_what_single_steps_count(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = SHAREGPT.sample(200, seed=2)
    jumping = Simulation(trace, Paged(block_size), POOL_SLOTS).run("t")
    monkeypatch.setattr(Paged, "steps_that_fit", lambda self, running: 1)
    stepping = Simulation(trace, Paged(block_size), POOL_SLOTS).run("t")
    assert replace(stepping, requests_per_s=0.0) == replace(jumping, requests_per_s=0.0)
    assert jumping.preemptions > 0


def test_one_request_that_fills_the_memory_alone() -> None:
    trace = Trace(np.array([5, 5]), np.array([4, 4]), np.zeros(2))
    row = Simulation(trace, Paged(4, slots=8), 8).run("t")
    # Steps with 5, 6, 7 and 8 tokens of 8 slots; the second request waits all the time.
    assert row.tokens_share == pytest.approx(26 / 32)
    assert row.internal_share == pytest.approx(6 / 32)
    assert row.mean_batch == 1 and row.preemptions == 0
