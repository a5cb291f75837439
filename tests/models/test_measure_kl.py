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
