"""Divergence is nothing between equals, and something between others; scripts/measure_kl.py names executors."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from support.weights import checkpoint_of, random_checkpoint, small_config

from octavo.divergence import divergence, measure
from octavo.executors.reference import ReferenceExecutor
from octavo.models.registry import build_program


@pytest.fixture(scope="module")
def measure_kl():
    path = Path(__file__).parents[2] / "scripts" / "measure_kl.py"
    spec = importlib.util.spec_from_file_location("measure_kl", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure_kl"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["measure_kl"]


def test_divergence_of_a_disturbed_model():
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


def test_divergence_equals_its_definition_in_float64():
    expected, actual = np.random.default_rng(1).standard_normal((2, 5, 1000)).astype(np.float32) * 4
    p, q = (np.exp(x.astype(np.float64)) for x in (expected, actual))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    definition = (p * np.log(p / q)).sum(-1)
    np.testing.assert_allclose(divergence(expected, actual), definition, atol=1e-6)
    np.testing.assert_array_equal(divergence(expected, expected.copy()), np.zeros(5))


def test_unknown_executor_is_refused(measure_kl):
    program = build_program(small_config())
    with pytest.raises(ValueError, match="executor is 'torch'"):
        measure_kl.make_executor("torch", program, random_checkpoint(program), 1)


def test_executors_are_named_with_dtype_and_kv_dtype(measure_kl):
    program = build_program(small_config())
    kinds = ("reference", "reference:auto:int8", "native", "native:float32", "native:bfloat16:int8")
    made = [measure_kl.make_executor(kind, program, random_checkpoint(program), 1) for kind in kinds]
    assert [executor.kv_cache_dtype for executor in made] == ["float32", "int8", "bfloat16", "float32", "int8"]
