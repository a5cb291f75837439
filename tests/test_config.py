"""Options are checked when they are given; errors name the field, the value and the limit."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config import EngineOptions, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("200MB", 200 * 10**6),
        ("200 mb", 200 * 10**6),
        ("4096", 4096),
        (4096, 4096),
        ("64KiB", 65536),
        ("1TB", 10**12),
    ],
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "12 apples", "-1MiB", "0", "1e9", "nan", "9999999TiB", True, 1.5, None])
def test_bad_sizes_are_refused_by_name(text: Any) -> None:
    with pytest.raises(ValueError, match="kv_cache_memory="):
        parse_bytes(text, "kv_cache_memory")


def test_sizes_are_written_for_people() -> None:
    assert format_bytes(3 * 2**29) == "1.5 GiB"
    assert format_bytes(100) == "100 B"
    assert format_bytes(2**40) == "1024 GiB"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "int8"),
        ("activation_dtype", "int4"),
        ("activation_dtype", "bfloat16"),
        ("kv_cache_dtype", "int4"),
        ("kv_cache_dtype", "fp8"),
        ("executor", "cuda"),
        ("instruction_set", "sse2"),
        ("block_size", 0),
        ("block_size", 12),
        ("block_size", 4),
        ("block_size", 264),
        ("block_size", "64"),
        ("max_model_len", 0),
        ("max_num_seqs", 0),
        ("max_num_seqs", True),
        ("max_num_batched_tokens", -1),
        ("threads", 0),
        ("threads", 1000),
        ("kv_cache_memory", "lots"),
        ("enable_prefix_caching", "yes"),
        ("model", ""),
    ],
)
def test_bad_options_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}="):
        EngineOptions(**{"model": "m", field: value})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_int8_activations_are_for_weights_as_they_are_stored(dtype: Any) -> None:
    with pytest.raises(ValueError, match=f"activation_dtype='int8': .*dtype='{dtype}'"):
        EngineOptions(model="m", dtype=dtype, activation_dtype="int8")


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="tensor_parallel_size"):
        EngineOptions(model="m", tensor_parallel_size=2)  # type: ignore[call-arg]


def test_small_blocks_are_for_the_reference_executor() -> None:
    for block_size in (1, 7, 8, 64, 256):
        assert EngineOptions(model="m", block_size=block_size, executor="reference").block_size == block_size
    with pytest.raises(ValueError, match="executor='reference' takes 1 to 7"):
        EngineOptions(model="m", block_size=4, executor="native")


def test_reference_executor_has_no_instruction_set() -> None:
    with pytest.raises(ValueError, match="instruction_set='avx2'"):
        EngineOptions(model="m", executor="reference", instruction_set="avx2")


def test_kv_cache_memory_in_bytes() -> None:
    assert EngineOptions(model="m", kv_cache_memory="1KiB").kv_cache_bytes == 1024
    assert EngineOptions(model="m").kv_cache_bytes is None
