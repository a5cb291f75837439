"""Figures for people."""

from octavo.bench.machine import machine_facts
from octavo.bench.prompts import random_prompts
from octavo.bench.report import table


def test_table_is_aligned_and_says_units_by_name() -> None:
    rows = [{"n": 1, "elapsed_s": 0.12345, "tokens_per_s": 12.34, "python_share": 0.051}]
    assert table(rows).splitlines() == [
        "n  elapsed_s  tokens_per_s  python_share",
        "1     0.1235          12.3          5.1%",
    ]
    assert table([]) == ""


def test_random_prompts_are_the_same_for_a_seed() -> None:
    assert random_prompts(2, 5, 100, seed=1) == random_prompts(2, 5, 100, seed=1)
    assert random_prompts(2, 5, 100, seed=1) != random_prompts(2, 5, 100, seed=2)
    assert all(0 <= token < 10 for prompt in random_prompts(3, 50, 10, seed=0) for token in prompt)


def test_machine_facts_name_the_machine() -> None:
    facts = machine_facts()
    assert facts["cpu"]
    assert facts["cores"] >= 1
