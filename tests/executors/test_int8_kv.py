"""KV in int8: the native executor and the reference one keep the same codes and compute the same attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS
from support.steps import Layout, Part, run_in_chunks
from support.weights import random_checkpoint, small_config

from octavo.executors.native import NativeExecutor
from octavo.executors.reference import ReferenceExecutor
from octavo.executors.reference.kv_memory import encode_int8, rotate
from octavo.loaders.checkpoint import open_checkpoint
from octavo.models.registry import build_program

DATA = Path(__file__).parents[1] / "models" / "data"
MODELS = [
    "llama",
    "llama_head40",
    "llama_head96",
    "llama_nine_heads_tied",
    "qwen2",
    "qwen3",
    "mistral_window",
    "gemma3",
]


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", MODELS)
def test_every_family_is_near_the_reference(name: str, instruction_set: str) -> None:
    """Both are given the same int8 KV, so what is left is the rounding of queries and weights to 16 bits."""
    checkpoint = open_checkpoint(DATA / name)
    program = build_program(checkpoint.config)
    native = NativeExecutor(program, checkpoint, "float32", 2, instruction_set, "int8")
    reference = ReferenceExecutor(program, checkpoint, kv_cache_dtype="int8")
    layout = Layout(program, 16, 1, 120)
    for executor in (native, reference):
        layout.reserve(executor)
    tokens = np.random.default_rng(0).integers(3, program.vocab_size, 120).tolist()
    expected = run_in_chunks(reference, layout, tokens, 50)
    logits = run_in_chunks(native, layout, tokens, 33)
    # A code on the edge of two may fall either way in the two executors, and is then one step off.
    assert np.abs(logits - expected).max() <= 2e-2 * np.abs(expected).max()
    assert np.median(np.abs(logits - expected)) <= 1e-3 * np.abs(expected).max()
    exact = run_in_chunks_of(reference.with_kv_cache_dtype("float32"), layout, tokens)
    assert np.abs(logits - expected).mean() < np.abs(exact - expected).mean() / 3
    native.close()


def run_in_chunks_of(executor: ReferenceExecutor, layout: Layout, tokens: list[int]) -> np.ndarray:
    layout.reserve(executor)
    return run_in_chunks(executor, layout, tokens, 50)


@pytest.mark.parametrize("block_size", [1, 3, 8])
def test_reference_blocks_hold_codes_and_scales(block_size: int) -> None:
    program = build_program(small_config(head_dim=12))
    executor = ReferenceExecutor(program, random_checkpoint(program), kv_cache_dtype="int8")
    assert executor.block_bytes(block_size) == block_size * 2 * 2 * 2 * (12 + 4)
    layout = Layout(program, block_size, 2, 30)
    layout.reserve(executor)
    tokens = list(range(3, 30))
    whole = run_in_chunks(executor, layout, tokens, 27)
    np.testing.assert_allclose(run_in_chunks(executor, layout, tokens, 4, sequence=1), whole, atol=2e-3)


def test_native_blocks_take_half_of_bfloat16() -> None:
    program = build_program(small_config(head_dim=64))
    executor = NativeExecutor(program, random_checkpoint(program))
    twin = executor.with_kv_cache_dtype("int8")
    assert (executor.kv_cache_dtype, twin.kv_cache_dtype) == ("bfloat16", "int8")
    assert twin.block_bytes(16) / executor.block_bytes(16) == (64 + 4) / 128


def test_a_twin_has_kv_memory_of_its_own() -> None:
    program = build_program(small_config())
    for executor in (
        NativeExecutor(program, random_checkpoint(program), "float32"),
        ReferenceExecutor(program, random_checkpoint(program)),
    ):
        layout = Layout(program, 8, 1, 20)
        layout.reserve(executor)
        executor.execute(layout.step([Part(0, 0, [5, 6, 7])]))
        twin = executor.with_kv_cache_dtype("int8")
        layout.reserve(twin)
        twin.execute(layout.step([Part(0, 0, [9, 9, 9])]))
        after = executor.execute(layout.step([Part(0, 3, [8])])).copy()
        fresh = executor.with_kv_cache_dtype("auto")
        layout.reserve(fresh)
        fresh.execute(layout.step([Part(0, 0, [5, 6, 7])]))
        np.testing.assert_array_equal(fresh.execute(layout.step([Part(0, 3, [8])])), after)


def test_codes_are_within_half_a_step() -> None:
    x = (
        np.random.default_rng(0).standard_normal((50, 64), dtype=np.float32)
        * np.float32(10) ** np.arange(-25, 25)[:, None]
    )
    codes, scales = encode_int8(x.astype(np.float32))
    assert np.abs(codes.astype(int)).max(axis=-1).tolist() == [127] * 50
    assert (np.abs(codes * scales - x) <= scales * 0.5001).all()


@pytest.mark.parametrize("head_dim", [1, 12, 40, 64, 257])
def test_rotation_keeps_dot_products(head_dim: int) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, head_dim)).astype(np.float32)
    block = head_dim & -head_dim
    np.testing.assert_allclose(rotate(x) @ rotate(y), block * (x @ y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rotate(rotate(x)), block * x, rtol=1e-5, atol=1e-4)


def test_bfloat16_is_refused_by_the_reference_executor() -> None:
    program = build_program(small_config())
    with pytest.raises(ValueError, match="kv_cache_dtype is 'bfloat16'"):
        ReferenceExecutor(program, random_checkpoint(program), kv_cache_dtype="bfloat16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="KV dtype is 'fp8'"):
        NativeExecutor(program, random_checkpoint(program), kv_cache_dtype="fp8")  # type: ignore[arg-type]
