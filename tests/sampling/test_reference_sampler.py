import numpy as np

from octavo.sampling.reference_sampler import exp_nonpositive, log_softmax, masses


def test_exp_is_within_1e_7_and_exact_at_zero():
    x = np.linspace(-30, 0, 300_001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(exp_nonpositive(x) / exact - 1).max() < 1e-7
    assert exp_nonpositive(np.zeros(1, np.float32))[0] == 1.0
    assert exp_nonpositive(x).max() == 1.0


def test_masses_round_half_to_even():
    weights = np.array([1.0, 0.0, 2.0**-40, 1.5 * 2.0**-40, 2.5 * 2.0**-40], np.float32)
    assert masses(weights).tolist() == [2**40, 0, 1, 2, 2]


def test_log_softmax_is_within_float32_rounding():
    logits = (np.random.default_rng(0).standard_normal(50_000) * 5).astype(np.float32)
    exact = logits.astype(np.float64)
    exact -= exact.max()
    exact -= np.log(np.exp(exact).sum())
    assert np.abs(log_softmax(logits) - exact).max() < 4e-6
