"""Frequencies over many seeds follow the probabilities. Seeds are fixed, so a test passes always or never.

One sampler stands for both, because their results are the same bytes.
"""

import numpy as np
import pytest

from octavo.sampling import Sampler, SamplingState
from octavo.sampling_params import SamplingParams

DRAWS = 4000


def frequencies(sampler, logits, by_position=False, **params):
    made = SamplingParams(**params)
    states = [SamplingState(made, [], 17 if by_position else seed) for seed in range(DRAWS)]
    if by_position:
        for position, state in enumerate(states):
            state.output_len = position
    rows = np.tile(logits.astype(np.float32), (DRAWS, 1))
    return np.bincount(sampler.sample(rows, states).token_ids, minlength=len(logits))


def assert_follows(counts, probabilities):
    """Chi-square against the 99.9 % quantile, approximated as Wilson and Hilferty do."""
    expected = probabilities * counts.sum()
    assert counts[expected == 0].sum() == 0
    expected, counts = expected[expected > 0], counts[expected > 0]
    degrees = len(expected) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3
    assert chi_square < limit


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


LOGITS = np.random.default_rng(8).normal(0, 1.5, 40)


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature, by_position):
    counts = frequencies(Sampler(40), LOGITS, by_position, temperature=temperature)
    assert_follows(counts, softmax(LOGITS / temperature))


def test_frequencies_after_top_k_and_top_p_are_renormalised():
    probabilities = softmax(LOGITS)
    order = np.argsort(-probabilities)
    kept = order[:12]
    mass = np.cumsum(probabilities[kept]) / probabilities[kept].sum()
    kept = kept[: int(np.searchsorted(mass, 0.8)) + 1]
    expected = np.zeros(40)
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    assert_follows(frequencies(Sampler(40), LOGITS, top_k=12, top_p=0.8), expected)


def test_frequencies_after_min_p_are_renormalised():
    probabilities = softmax(LOGITS)
    expected = np.where(probabilities >= 0.1 * probabilities.max(), probabilities, 0)
    assert_follows(frequencies(Sampler(40), LOGITS, min_p=0.1), expected / expected.sum())


def test_a_flat_distribution_over_a_large_vocabulary_is_uniform():
    made = SamplingParams()
    sampler = Sampler(30000)
    rows = np.zeros((500, 30000), np.float32)
    ids = sampler.sample(rows, [SamplingState(made, [], seed) for seed in range(500)]).token_ids
    assert_follows(np.bincount(ids // 3000, minlength=10), np.full(10, 0.1))
