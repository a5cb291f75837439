"""Every family equals transformers in fp32, however its tokens are cut into steps and blocks."""

from pathlib import Path

import numpy as np
import pytest
from support.steps import Layout, Part, run_greedy, run_in_chunks

from octavo.models.registry import build_program

DATA = Path(__file__).parent / "data"
NAMES = sorted(path.stem for path in DATA.glob("*.npz"))
TOLERANCE = 1e-4


class Golden:
    """A small model with what transformers computed."""

    def __init__(self, name, open_model, make_executor):
        stored = dict(np.load(DATA / f"{name}.npz"))
        count = len(stored) // 3
        self.prompts = [stored[f"prompt{i}"].tolist() for i in range(count)]
        self.logits = [stored[f"logits{i}"] for i in range(count)]
        self.greedy = [stored[f"greedy{i}"].tolist() for i in range(count)]
        checkpoint = open_model(name)
        self.longest = max(len(p) + len(g) for p, g in zip(self.prompts, self.greedy, strict=True))
        config = checkpoint.config
        beyond = self.longest if self.longest > config.max_position_embeddings else None
        self.program = build_program(config, max_model_len=beyond)
        self.executor = make_executor(self.program, checkpoint)

    def layout(self, block_size):
        layout = Layout(self.program, block_size, len(self.prompts), self.longest)
        layout.reserve(self.executor)
        return layout


@pytest.fixture(params=NAMES)
def golden(request, open_model, make_executor):
    return Golden(request.param, open_model, make_executor)


@pytest.mark.parametrize("block_size", [1, 4, 8, 16])
def test_whole_prompt_in_one_step(golden, block_size):
    logits = run_in_chunks(golden.executor, golden.layout(block_size), golden.prompts[-1], chunk=1000)
    np.testing.assert_allclose(logits, golden.logits[-1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("chunk", "block_size"), [(1, 8), (7, 4), (7, 16)])
def test_prompt_in_chunks(golden, chunk, block_size):
    logits = run_in_chunks(golden.executor, golden.layout(block_size), golden.prompts[-1], chunk)
    np.testing.assert_allclose(logits, golden.logits[-1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("block_size", [4, 16])
def test_ragged_batch_of_prompts(golden, block_size):
    parts = [Part(number, 0, prompt) for number, prompt in enumerate(golden.prompts)]
    logits = golden.executor.execute(golden.layout(block_size).step(parts))
    expected = np.stack([rows[-1] for rows in golden.logits])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("block_size", [1, 8, 16])
def test_greedy_decoding_in_a_batch(golden, block_size):
    new_tokens = len(golden.greedy[0])
    if not new_tokens:
        pytest.skip("no continuation was recorded")
    outputs = run_greedy(golden.executor, golden.layout(block_size), golden.prompts, new_tokens)
    assert outputs == golden.greedy


def test_prefill_beside_decode(golden):
    """One sequence decodes token by token while another's prompt comes in chunks."""
    if len(golden.prompts) < 4:
        pytest.skip("one prompt only")
    layout, long, short = golden.layout(8), golden.prompts[-1], golden.prompts[-2]
    golden.executor.execute(layout.step([Part(0, 0, short[:3])]))
    rows = []
    for number in range(8):
        decode = Part(0, 3 + number, short[3 + number : 4 + number])
        prefill = Part(1, 5 * number, long[5 * number : 5 * number + 5])
        rows.append(golden.executor.execute(layout.step([decode, prefill], all_logits=True))[1:].copy())
    np.testing.assert_allclose(np.concatenate(rows), golden.logits[-1], rtol=0, atol=TOLERANCE)
