"""The divergence is nothing between equals, and something between others."""

from __future__ import annotations

import numpy as np
from support.weights import checkpoint_of, random_checkpoint, small_config

from octavo.divergence import divergence, measure
from octavo.executors.reference import ReferenceExecutor
from octavo.models.registry import build_program


def test_divergence_of_a_disturbed_model() -> None:
    config = small_config(family="mistral", sliding_window=20)
    program = build_program(config)
    checkpoint = random_checkpoint(program)
    disturbed = {name: tensor.array.copy() for name, tensor in checkpoint.tensors.items()}
    disturbed["lm_head.weight"] *= np.float32(1.5)
    tokens = np.random.default_rng(0).integers(0, 64, 100).tolist()
    baseline = ReferenceExecutor(program, checkpoint)
    same = measure(ReferenceExecutor(program, checkpoint), baseline, program, tokens, chunk=32)
    assert len(same.kl) == len(same.same_top) == 100
    assert np.abs(same.kl).max() < 1e-9
    assert same.same_top.all()
    other = ReferenceExecutor(program, checkpoint_of(disturbed))
    different = measure(other, baseline, program, tokens, chunk=32)
    # Logits half as large again: another distribution with the same order.
    assert different.kl.min() > 0
    assert different.same_top.all()


def test_divergence_equals_its_definition_in_float64() -> None:
    expected, actual = np.random.default_rng(1).standard_normal((2, 5, 1000)).astype(np.float32) * 4
    p, q = (np.exp(x.astype(np.float64)) for x in (expected, actual))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    definition = (p * np.log(p / q)).sum(-1)
    np.testing.assert_allclose(divergence(expected, actual), definition, atol=1e-6)
    np.testing.assert_array_equal(divergence(expected, expected.copy()), np.zeros(5))
