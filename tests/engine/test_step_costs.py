"""What further rows cost, from the times of steps."""

from math import inf

import pytest

from octavo.engine.step_costs import FRESH, PRIOR, StepCosts


def learnt(sequences, plain, row, steps=40):
    """Costs after steps of `plain` seconds, and `row` more for each further row."""
    costs = StepCosts()
    costs.record(sequences, 0, plain)
    for number in range(steps):
        further = 1 + number % 5
        costs.record(sequences, further, plain + row * further)
    return costs


def test_a_step_without_further_rows_is_wanted_first():
    costs = StepCosts()
    assert costs.row_cost(4) == inf
    costs.record(4, 3, 1.0)
    assert costs.row_cost(4) == inf
    costs.record(4, 0, 1.0)
    assert costs.row_cost(4) == PRIOR


@pytest.mark.parametrize(
    ("sequences", "plain", "row", "expected"),
    [(1, 0.010, 0.0005, 0.05), (32, 0.016, 0.0005, 1.0), (32, 0.016, 0.00025, 0.5), (8, 0.008, 0.0, 0.0)],
)
def test_the_cost_is_in_tokens_that_the_time_makes_otherwise(sequences, plain, row, expected):
    assert learnt(sequences, plain, row).row_cost(sequences) == pytest.approx(expected, abs=0.02)


def test_other_numbers_of_sequences_are_taken_for_the_nearest_known_one():
    costs = learnt(2, 1.0, 0.05)
    for _ in range(40):
        costs.record(64, 0, 8.0)
        costs.record(64, 4, 8.4)
    costs.record(3, 0, 1.1)
    costs.record(60, 0, 7.7)
    assert costs.row_cost(3) == costs.row_cost(2) == pytest.approx(0.1, abs=0.01)
    assert costs.row_cost(60) == costs.row_cost(64) == pytest.approx(0.8, abs=0.1)


def test_a_step_that_was_held_up_changes_little():
    costs = learnt(1, 0.010, 0.001)
    before = costs.row_cost(1)
    costs.record(1, 0, 5.0)
    assert costs.row_cost(1) == pytest.approx(before, abs=0.01)
    costs.record(1, 2, 5.0)
    assert costs.row_cost(1) < before + 0.3


def test_what_is_not_tried_any_more_is_tried_again_some_day():
    costs = learnt(16, 1.0, 0.1)
    assert costs.row_cost(16) > 1.0
    for _ in range(5000):
        costs.record(16, 0, 1.0)
    assert costs.row_cost(16) < 0.3


def test_a_few_steps_with_further_rows_among_many_without_are_enough():
    costs = StepCosts()
    for _ in range(200):
        for _ in range(15):
            costs.record(4, 0, 1.0)
        costs.record(4, 1, 1.2)
    assert costs.row_cost(4) == pytest.approx(0.8, abs=0.1)


def test_now_and_then_a_step_without_further_rows_is_wanted():
    costs = StepCosts()
    costs.record(1, 0, 1.0)
    for _ in range(FRESH):
        assert costs.row_cost(1) < inf
        costs.record(1, 3, 1.1)
    assert costs.row_cost(1) == inf
    costs.record(1, 0, 1.0)
    assert costs.row_cost(1) < inf
