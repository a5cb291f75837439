"""What a long step costs in memory, and that its rows come out as they do in short ones."""

import numpy as np
import pytest
from support.steps import Layout, Part
from support.weights import random_checkpoint, small_config

from octavo.executors.native import NativeExecutor
from octavo.models.registry import build_program


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_long_step_keeps_all_rows_only_of_what_lasts(family):
    """The gated MLP's values are needed for 64 rows of each thread."""
    config = small_config(family=family, intermediate_size=512)
    program = build_program(config)
    executor = NativeExecutor(program, random_checkpoint(program), "float32", num_threads=2)
    layout = Layout(program, 8, num_seqs=1, max_len=40)
    tokens = np.random.default_rng(0).integers(0, program.vocab_size, 40).tolist()
    many = Layout(program, 8, num_seqs=32, max_len=40)
    many.reserve(executor)
    short = executor.execute(layout.step([Part(0, 0, tokens)])).copy()  # shared rows
    before = executor._runner.arena_bytes
    long = executor.execute(many.step([Part(place, 0, tokens) for place in range(32)])).copy()  # rows of their own
    grown = (executor._runner.arena_bytes - before) / 4
    logits = 32 * program.vocab_size
    assert grown - logits < 32 * 40 * (sum(program.buffer_widths) - 3 * 512 + 16 * len(program.buffer_widths))
    assert all(np.array_equal(row, short[0]) for row in long)
    executor.close()


def test_attention_writes_over_its_queries():
    """Of a long step's rows the residual and the queries are kept; what attention makes takes no more."""
    config = small_config(family="llama")
    program = build_program(config)
    executor = NativeExecutor(program, random_checkpoint(program), "float32", num_threads=2)
    layout = Layout(program, 8, num_seqs=32, max_len=40)
    layout.reserve(executor)
    tokens = np.random.default_rng(0).integers(0, program.vocab_size, 40).tolist()
    before = executor._runner.arena_bytes
    executor.execute(layout.step([Part(place, 0, tokens) for place in range(32)]))
    grown = (executor._runner.arena_bytes - before) / 4 - 32 * program.vocab_size
    queries = config.num_attention_heads * config.head_dim
    assert grown <= 32 * 40 * (config.hidden_size + queries + 2 * 16)
    executor.close()
