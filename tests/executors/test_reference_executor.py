"""What the reference executor refuses, and how it lays out blocks."""

import numpy as np
import pytest
from support.steps import Layout, Part, run_in_chunks
from support.weights import ArrayTensor, checkpoint_of, random_checkpoint, small_config

from octavo.executors.reference import ReferenceExecutor
from octavo.executors.reference.operations import gated_activation
from octavo.models.registry import build_program
from octavo.program.builder import ProgramBuilder


@pytest.fixture
def program():
    return build_program(small_config())


def test_missing_weight_is_named(program):
    checkpoint = random_checkpoint(program)
    tensors = {name: t for name, t in checkpoint.tensors.items() if name != "layers.1.mlp.up_proj.weight"}
    with pytest.raises(ValueError, match=r"weight layers.1.mlp.up_proj.weight \[48, 32\] is missing"):
        ReferenceExecutor(program, type(checkpoint)(tensors))


def test_misshaped_weight_is_named_with_both_shapes(program):
    checkpoint = random_checkpoint(program)
    tensors = dict(checkpoint.tensors)
    tensors["norm.weight"] = ArrayTensor("norm.weight", np.zeros(31, np.float32))
    with pytest.raises(ValueError, match=r"norm.weight has shape \[31\], not \[32\]"):
        ReferenceExecutor(program, type(checkpoint)(tensors))


def test_bad_numbers_are_refused(program):
    executor = ReferenceExecutor(program, random_checkpoint(program))
    with pytest.raises(ValueError, match="block_size is 0"):
        executor.block_bytes(0)
    with pytest.raises(ValueError, match="num_blocks is 0"):
        executor.reserve_kv(0, 8)
    with pytest.raises(ValueError, match="num_threads is 0"):
        ReferenceExecutor(program, random_checkpoint(program), num_threads=0)


def test_blocks_must_be_reserved_first(program):
    executor = ReferenceExecutor(program, random_checkpoint(program))
    layout = Layout(program, 8, 1, 8)
    with pytest.raises(RuntimeError, match="reserve_kv"):
        executor.execute(layout.step([Part(0, 0, [1])]))


def test_block_bytes_count_k_and_v_of_every_layer(program):
    executor = ReferenceExecutor(program, random_checkpoint(program))
    assert executor.block_bytes(16) == 16 * 2 * (2 * 2 * 8) * 4


def test_unmapped_block_is_an_error_not_a_read(program):
    executor = ReferenceExecutor(program, random_checkpoint(program))
    layout = Layout(program, 4, 1, 16)
    layout.reserve(executor)
    executor.execute(layout.step([Part(0, 0, [1] * 8)]))
    step = layout.step([Part(0, 8, [1])])
    step.block_tables[0][0, 1] = -1
    with pytest.raises(ValueError, match="logical block 1 is needed but not mapped"):
        executor.execute(step)
    short = layout.step([Part(0, 8, [1])])
    object.__setattr__(short, "block_tables", (short.block_tables[0][:, :2],))
    with pytest.raises(ValueError, match="logical block 2 is past its table of 2"):
        executor.execute(short)


def test_layers_may_keep_different_shapes():
    """Blocks are as large as the largest group needs."""
    builder = ProgramBuilder(32, 64)
    residual = builder.embed("embed", 16)
    for kv_heads, window in ((1, 4), (2, None), (2, 4)):
        layer = builder.kv_layer(kv_heads, 8, window)
        (kv, _) = builder.split(residual, ("kv", kv_heads * 8), ("rest", 16 - kv_heads * 8))
        builder.write_kv(kv, kv, layer)
        heads = 2
        attended = builder.paged_attention(residual, layer, heads, 0.3)
        builder.add_into(residual, attended)
    builder.logits(builder.select_rows(residual), "embed")
    program = builder.build()
    assert [group.layers for group in program.kv_groups] == [(0,), (2,), (1,)]
    executor = ReferenceExecutor(program, random_checkpoint(program))
    assert executor.block_bytes(4) == 4 * 2 * 16 * 4
    tokens = list(range(20))
    results = []
    for block_size, chunk in ((4, 20), (2, 3), (5, 1)):
        layout = Layout(program, block_size, 1, 20)
        layout.reserve(executor)
        results.append(run_in_chunks(executor, layout, tokens, chunk))
    np.testing.assert_allclose(results[1], results[0], atol=1e-5)
    np.testing.assert_allclose(results[2], results[0], atol=1e-5)


def test_activations_do_not_overflow():
    gate = np.array([[-1000.0, -1.0, 0.0, 1.0, 1000.0]], np.float32)
    up = np.ones_like(gate)
    silu = gated_activation(gate, up, "silu")
    gelu = gated_activation(gate, up, "gelu_tanh")
    np.testing.assert_allclose(silu, [[0, -0.26894143, 0, 0.7310586, 1000]], atol=1e-6)
    np.testing.assert_allclose(gelu, [[0, -0.158808, 0, 0.841192, 1000]], atol=1e-6)
    assert silu.dtype == gelu.dtype == np.float32


def test_checkpoint_of_arrays_is_enough(program):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in program.weights.items()}
    executor = ReferenceExecutor(program, checkpoint_of(arrays))
    executor.reserve_kv(1, 8)
    logits = executor.execute(Layout(program, 8, 1, 8).step([Part(0, 0, [1, 2])]))
    np.testing.assert_array_equal(logits, np.zeros((1, 64)))
    executor.close()
