"""The block map against the engine's own books, between the steps of real requests."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from octavo import SamplingParams
from octavo.engine.engine import Engine
from octavo.engine.request import Request
from octavo.observe.block_map import MOST_OWNERS, BlockMap, capture

PROMPT = list(range(10, 33))  # two full blocks and 7 tokens


def add(engine: Engine, name: str, prompt: list[int] = PROMPT, **params: Any) -> None:
    params = {"max_tokens": 20, "ignore_eos": True, "temperature": 1.0, "seed": 1, **params}
    engine.add_request(Request(name, prompt, SamplingParams(**params)))


def take(engine: Engine) -> BlockMap:
    return BlockMap(capture(engine))


def cells_by_block(cells: list[list[int]]) -> dict[int, list[int]]:
    return {cell[0]: cell[1:] for cell in cells}


def test_empty_pool_has_no_cells(engine: Engine) -> None:
    taken = take(engine)
    assert taken.cells() == []
    assert taken.figures()["free_blocks"] == taken.figures()["total_blocks"] == engine.pool.num_blocks
    assert taken.requests == []


def test_one_request_owns_its_blocks_and_its_tail_is_partly_filled(engine: Engine) -> None:
    add(engine, "one")
    engine.step()
    taken = take(engine)
    assert sorted(cell[1:] for cell in taken.cells()) == [[1, 7, 0], [1, 8, 0], [1, 8, 0]]
    assert taken.figures()["wasted_slots"] == 1
    assert taken.figures()["reserved_power_of_two"] == 32
    assert taken.figures()["reserved_max_model_len"] == 64
    (request,) = taken.requests
    assert request == {
        "number": 0,
        "id": "one",
        "state": "running",
        "sequences": 1,
        "prompt_tokens": 23,
        "cached_tokens": 0,
        "output_tokens": 1,
        "preemptions": 0,
        "blocks": 3,
        "shared_blocks": 0,
        "unfilled_slots": 1,
    }


def test_siblings_share_and_part_ways(engine: Engine) -> None:
    add(engine, "four", n=4)
    engine.step()
    assert sorted(cell[1:] for cell in take(engine).cells()) == [[4, 7, 0], [4, 8, 0], [4, 8, 0]]
    engine.step()  # each writes its own copy of the tail
    taken = take(engine)
    assert Counter(tuple(cell[1:]) for cell in taken.cells()) == {(4, 8, 0): 2, (1, 8, 0): 4}
    assert taken.figures()["shared_blocks"] == 2
    assert taken.figures()["references"] == 12


def test_prefix_is_shared_by_requests_and_then_cached(engine: Engine) -> None:
    add(engine, "first")
    engine.step()
    add(engine, "second")
    engine.step()
    shared = [cell for cell in take(engine).cells() if cell[1] == 2]
    assert [cell[2:] for cell in shared] == [[8, 0, 1], [8, 0, 1]]
    engine.abort("first")
    engine.abort("second")
    taken = take(engine)
    assert all(cell[1:] == [0, 8] for cell in taken.cells())
    assert len(taken.cells()) == taken.figures()["cached_blocks"] == engine.pool.num_cached > 0


def test_a_cached_tail_is_as_full_as_it_is(engine: Engine) -> None:
    """A finished sequence of 17 prompt tokens and 4 more, the last of which was not computed."""
    add(engine, "one", prompt=list(range(5, 22)), max_tokens=4)
    while engine.has_unfinished:
        engine.step()
    cells = take(engine).cells()
    assert sorted(cell[1:] for cell in cells) == [[0, 4], [0, 8], [0, 8]]


def test_waiting_requests_hold_nothing(engine: Engine) -> None:
    for number in range(20):
        add(engine, f"request-{number}", prompt=[number + 5] * 40)
    engine.step()
    taken = take(engine)
    states = Counter(request["state"] for request in taken.requests)
    assert states == {"running": taken.figures()["running"], "waiting": taken.figures()["waiting"]}
    assert states["waiting"] > 0
    assert all(request["blocks"] == 0 for request in taken.requests if request["state"] == "waiting")


def test_owners_of_one_block_are_listed_up_to_a_limit(engine: Engine) -> None:
    add(engine, "request-0", max_tokens=40)
    engine.step()
    for number in range(1, MOST_OWNERS + 4):
        add(engine, f"request-{number}", max_tokens=3)
    engine.step()
    taken = take(engine)
    cell = max(taken.cells(), key=len)
    assert cell[1] == taken.figures()["running"] > MOST_OWNERS
    assert cell[3:] == list(range(MOST_OWNERS))


@pytest.mark.parametrize("seed", range(3))
def test_map_agrees_with_the_books_and_changes_add_up(engine: Engine, seed: int) -> None:
    """Random requests, aborts and steps: every map is the pool's state, and the changes lead from each to the
    next."""
    rng = random.Random(seed)
    known: dict[int, list[int]] = {}
    earlier = take(engine)
    for number in range(60):
        if rng.random() < 0.4:
            prompt = PROMPT[: rng.randint(1, 23)] + [rng.randint(3, 90) for _ in range(rng.randint(0, 12))]
            add(engine, f"request-{number}", prompt, n=rng.randint(1, 4), max_tokens=rng.randint(1, 25))
        if rng.random() < 0.1 and engine.scheduler.running:
            engine.abort(rng.choice(engine.scheduler.running).request_id)
        engine.step()
        taken = take(engine)
        check_map(engine, taken)
        for cell in taken.changes_since(earlier):
            known[cell[0]] = cell[1:]
        occupied = {block: cell for block, cell in known.items() if cell[:2] != [0, 0]}
        assert occupied == cells_by_block(taken.cells())
        earlier = taken
    assert engine.stats().preemptions or engine.stats().prefix_hit_tokens


def check_map(engine: Engine, taken: BlockMap) -> None:
    stats, cells = engine.stats(), cells_by_block(taken.cells())
    size = stats.block_size
    assert {block: cell[0] for block, cell in cells.items() if cell[0]} == {
        block: count for block, count in enumerate(engine.pool.ref_counts) if count
    }
    assert {block for block, cell in cells.items() if not cell[0]} == set(engine.pool.snapshot()[1])
    assert sum(cell[1] for cell in cells.values() if cell[0]) == stats.used_slots
    assert sum(size - cell[1] for cell in cells.values() if cell[0]) == stats.wasted_slots
    figures = taken.figures()
    assert figures["owned_blocks"] + figures["shared_blocks"] == stats.referenced_blocks
    held = {request["number"]: request["blocks"] for request in taken.requests}
    owned = Counter(owner for cell in cells.values() for owner in cell[2:])
    assert owned == Counter({number: blocks for number, blocks in held.items() if blocks})
