"""Lengths like those of the paper's traces."""

import numpy as np
import pytest

from octavo.bench.lengths import ALPACA, MAX_LENGTH, SHAREGPT, LengthDistribution


@pytest.mark.parametrize("distribution", [SHAREGPT, ALPACA], ids=lambda each: each.name)
def test_means_are_the_published_ones_after_the_cut(distribution: LengthDistribution) -> None:
    trace = distribution.sample(100_000, seed=0)
    assert trace.prompts.mean() == pytest.approx(distribution.prompt_mean, rel=0.02)
    assert trace.outputs.mean() == pytest.approx(distribution.output_mean, rel=0.02)
    assert trace.prompts.min() >= 1 and trace.outputs.min() >= 1
    assert (trace.prompts + trace.outputs).max() <= MAX_LENGTH


def test_the_same_seed_gives_the_same_trace() -> None:
    one, two = (SHAREGPT.sample(50, seed=3).arriving(2.0, seed=3) for _ in range(2))
    assert np.array_equal(one.prompts, two.prompts) and np.array_equal(one.arrivals, two.arrivals)
    assert not np.array_equal(one.prompts, SHAREGPT.sample(50, seed=4).prompts)


def test_arrivals_are_poisson_and_lengths_scale() -> None:
    trace = ALPACA.sample(20_000, seed=0).arriving(30.0, seed=0)
    gaps = np.diff(trace.arrivals)
    assert gaps.mean() == pytest.approx(1 / 30, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 30, rel=0.05)
    assert trace.scaled(0.25).outputs.mean() == pytest.approx(trace.outputs.mean() / 4, rel=0.02)
    assert trace.scaled(0.001).outputs.min() == 1
