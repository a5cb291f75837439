"""scripts/measure_kl.py knows its executors."""

import importlib.util
import sys
from pathlib import Path

import pytest
from support.weights import random_checkpoint, small_config

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


def test_unknown_executor_is_refused(measure_kl):
    program = build_program(small_config())
    with pytest.raises(ValueError, match="executor is 'torch'"):
        measure_kl.make_executor("torch", program, random_checkpoint(program), 1)


def test_executors_are_named_with_their_formats(measure_kl):
    program = build_program(small_config())
    kinds = ("reference", "reference:auto:int8", "native", "native:float32", "native:bfloat16:int8")
    made = [measure_kl.make_executor(kind, program, random_checkpoint(program), 1) for kind in kinds]
    assert [executor.kv_cache_dtype for executor in made] == ["float32", "int8", "bfloat16", "float32", "int8"]


def test_activations_are_named_last(measure_kl):
    program = build_program(small_config())
    with pytest.raises(ValueError, match="activation_dtype='int8'"):
        measure_kl.make_executor("native:auto:auto:int8", program, random_checkpoint(program), 1)
    with pytest.raises(ValueError, match="executor is 'reference:auto:auto:int8'"):
        measure_kl.make_executor("reference:auto:auto:int8", program, random_checkpoint(program), 1)
