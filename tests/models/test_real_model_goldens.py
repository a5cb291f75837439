"""The real models in full precision equal transformers in fp32 on the same dequantised weights."""

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS
from support.real_models import NAMES, logprobs_in_one_step, read_goldens

from octavo.models.registry import build_program


@pytest.mark.parametrize("name", NAMES)
def test_goldens_are_complete(name):
    goldens = read_goldens(name)
    assert len(goldens) == 20
    for golden in goldens:
        assert len(golden.token_ids) == len(golden.logprobs) == len(golden.gaps) == 64
        # Nothing that float32 could decide either way.
        assert min(golden.gaps) > 2e-4


@pytest.mark.real_model
@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_and_logprobs(name, make_executor):
    aliases = pytest.importorskip("octavo.loaders.aliases")
    hub = pytest.importorskip("octavo.loaders.hub")
    checkpoints = pytest.importorskip("octavo.loaders.checkpoint")
    path = hub.octavo_home() / "models" / aliases.ALIASES[name].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    checkpoint = checkpoints.open_checkpoint(path)
    program = build_program(checkpoint.config)
    executor = make_executor(program, checkpoint)
    every = 1 if getattr(executor, "instruction_set", None) == INSTRUCTION_SETS[-1] else 10
    for golden in read_goldens(name)[::every]:
        best, logprobs = logprobs_in_one_step(executor, program, golden)
        assert best == golden.token_ids
        np.testing.assert_allclose(logprobs, golden.logprobs, atol=1e-3)
