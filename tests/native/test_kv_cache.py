"""The native KV cache: sizes, copies, release, and the invariant that its V is always finite."""

from __future__ import annotations

import platform
import re

import numpy as np
import numpy.typing as npt
import pytest
from support.machine import INSTRUCTION_SETS

from octavo import _native
from octavo.executors.reference.kv_memory import encode_int8, rotate
from octavo.observe.process import resident_bytes

FloatArray = npt.NDArray[np.float32]


def make_cache(
    block_size: int = 32, head_dim: int = 64, dtype: str = "bfloat16", num_blocks: int = 8
) -> _native.KvCache:
    return _native.KvCache(
        num_blocks=num_blocks, block_size=block_size, places=2, kv_heads=3, head_dim=head_dim, dtype=dtype
    )


def random_rows(tokens: int, head_dim: int = 64) -> FloatArray:
    return np.random.default_rng(tokens).standard_normal((tokens, 3, head_dim), dtype=np.float32)


@pytest.mark.parametrize(
    "dtype,head_dim,expected",
    [
        ("bfloat16", 64, 2 * 2 * 3 * 32 * 64 * 2),
        ("float32", 80, 2 * 2 * 3 * 32 * 96 * 4),
        ("int8", 80, 2 * 2 * 3 * 32 * (96 + 4)),
    ],
)
def test_a_block_holds_k_and_v_of_every_place(dtype: str, head_dim: int, expected: int) -> None:
    cache = make_cache(dtype=dtype, head_dim=head_dim)
    assert cache.block_bytes == expected
    assert cache.reserved_bytes == 8 * expected
    assert cache.num_blocks == 8


@pytest.mark.parametrize(
    "change,message",
    [
        ({"block_size": 12}, "block_size is 12"),
        ({"block_size": 65544}, "block_size is 65544"),
        ({"head_dim": 513}, "head_dim is 513"),
        ({"num_blocks": 0}, "num_blocks is 0"),
        ({"dtype": "int4"}, "dtype is 'int4', must be float32, bfloat16 or int8"),
    ],
)
def test_a_shape_out_of_its_limits_is_refused_by_name(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"block_size": 32, "head_dim": 64, "dtype": "bfloat16", "num_blocks": 4}
    with pytest.raises(ValueError, match=message):
        make_cache(**(arguments | change))  # type: ignore[arg-type]


def test_address_space_is_reserved_without_memory() -> None:
    cache = make_cache(num_blocks=2_000_000)
    assert cache.reserved_bytes > 50 << 30
    cache.write(0, random_rows(1), random_rows(1), np.array([1_999_999 * 32], np.int32))
    assert cache.block(1_999_999).any()
    assert not cache.block(1_000_000).any()


def test_copy_block_copies_all_places() -> None:
    cache = make_cache(block_size=8)
    slots = np.arange(8, 16, dtype=np.int32)
    for place in range(2):
        cache.write(place, random_rows(8), random_rows(8), slots)
    cache.copy_block(1, 6)
    assert np.array_equal(cache.block(6), cache.block(1))
    assert cache.block(6).any()
    assert not cache.block(5).any()
    with pytest.raises(IndexError, match="block 8"):
        cache.copy_block(0, 8)


def test_release_zeroes_whole_pages_of_its_blocks_only() -> None:
    cache = make_cache(block_size=8, num_blocks=16)
    for block in range(16):
        cache.block(block)[:] = 1
    cache.release(4, 8)
    assert all(cache.block(block).all() for block in (*range(4), *range(12, 16)))
    assert not any(cache.block(block).any() for block in range(5, 11))
    cache.release(3, 0)
    assert cache.block(3).all()
    with pytest.raises(IndexError):
        cache.release(10, 7)


def test_commit_takes_memory_and_changes_no_byte() -> None:
    cache = make_cache(block_size=64, num_blocks=1024)
    cache.block(1)[:] = 7
    before = resident_bytes() or 0
    cache.commit(1, 512)
    taken = (resident_bytes() or 0) - before
    assert cache.block(1).all() and not cache.block(2).any()
    if platform.system() == "Linux" and tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (5, 14):
        assert taken >= 500 * cache.block_bytes
    with pytest.raises(IndexError):
        cache.commit(1000, 25)


def test_a_written_token_lands_in_its_own_bytes() -> None:
    cache = make_cache(block_size=32, head_dim=64)
    k, v = random_rows(32), random_rows(32)
    cache.write(1, k, v, np.arange(32, dtype=np.int32))
    half = 3 * 32 * 64
    stored = cache.block(0).view(np.uint16).astype(np.uint32) << 16
    place = stored.view(np.float32)[2 * half :].reshape(2, 3, -1)
    keys = place[0].reshape(3, 2, 32, 16, 2).transpose(1, 3, 0, 2, 4).reshape(32, 3, 64)
    values = place[1].reshape(3, 4, 16, 16, 2).transpose(2, 4, 0, 1, 3).reshape(32, 3, 64)
    np.testing.assert_allclose(keys, k, rtol=2**-8)
    np.testing.assert_allclose(values, v, rtol=2**-8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("head_dim", [1, 15, 40, 64, 80, 257])
@pytest.mark.parametrize("block_size", [8, 32])
def test_bytes_depend_neither_on_the_instruction_set_nor_on_the_tokens_beside(
    block_size: int, head_dim: int, dtype: str
) -> None:
    tokens, slots = 72, np.arange(8, 80, dtype=np.int32)
    k, v = random_rows(tokens, head_dim), 3 * random_rows(tokens, head_dim)
    k[11, 0, 0], k[12, 1, -1], k[13] = np.nan, -np.inf, 1e-40
    v[14, 0, 0], v[25, 2, -1], v[26, 1, 0], v[37] = np.nan, np.inf, 3.4e38, -1e-40
    caches = []
    for isa in INSTRUCTION_SETS:
        at_once, one_by_one = (make_cache(block_size, head_dim, dtype, num_blocks=10) for _ in range(2))
        at_once.write(1, k, v, slots, isa)
        for token in np.random.default_rng(0).permutation(tokens):
            one_by_one.write(1, k[[token]], v[[token]], slots[[token]], isa)
        caches += [np.concatenate([cache.block(block) for block in range(10)]) for cache in (at_once, one_by_one)]
    assert all(np.array_equal(cache, caches[0]) for cache in caches)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.4e38])
def test_values_in_the_cache_are_finite_whatever_is_written(value: float) -> None:
    cache = make_cache()
    k, v = random_rows(1), random_rows(1)
    v[0, 1, 5] = value
    cache.write(0, k, v, np.zeros(1, np.int32))
    stored = (cache.block(0).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    keys, values = stored[: 2 * 3 * 32 * 64].reshape(2, 3, 32 * 64)
    assert np.isfinite(values).all()
    assert np.isnan(keys[1]).any()
    assert np.isfinite(keys[[0, 2]]).all()


def int8_rows(cache: _native.KvCache, head_dim: int) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """(codes [K | V, 3 heads, 32 tokens, padded head_dim], scales [K | V, 3, 32]) of place 0 in block 0."""
    padded = -(-head_dim // 32) * 32
    place = cache.block(0).reshape(2, 2, 3, 32 * (padded + 4))[0]
    codes = place[..., : 32 * padded].view(np.int8)
    keys = codes[0].reshape(3, 2, padded // 2, 16, 2).transpose(0, 1, 3, 2, 4).reshape(3, 32, padded)
    values = codes[1].reshape(3, padded // 16, 16, 16, 2).transpose(0, 2, 4, 1, 3).reshape(3, 32, padded)
    return np.stack((keys, values)), np.ascontiguousarray(place[..., 32 * padded :]).view(np.float32)


@pytest.mark.parametrize("head_dim", [1, 2, 40, 64, 80, 100, 256, 257])
def test_int8_codes_are_those_of_the_reference(head_dim: int) -> None:
    cache = make_cache(block_size=32, head_dim=head_dim, dtype="int8")
    k, v = random_rows(32, head_dim), 3 * random_rows(32, head_dim)
    k[3, :, 0] = 50  # an outlier, which the rotation spreads
    k[4], v[5] = 0, 1e-31
    cache.write(0, k, v, np.arange(32, dtype=np.int32))
    codes, scales = int8_rows(cache, head_dim)
    for half, rows in enumerate((rotate(k), v)):
        expected, expected_scales = encode_int8(rows)
        assert np.array_equal(codes[half, :, :, :head_dim], expected.transpose(1, 0, 2))
        assert np.array_equal(scales[half], expected_scales[..., 0].T)
    assert not codes[..., head_dim:].any()
    assert np.abs(codes.astype(int)).max() == 127


def test_int8_bytes_of_a_token_do_not_depend_on_others() -> None:
    k, v = random_rows(40), random_rows(40)
    slots = np.arange(40, dtype=np.int32)
    for block_size in (8, 32):
        at_once, one_by_one = (make_cache(block_size=block_size, dtype="int8") for _ in range(2))
        at_once.write(1, k, v, slots)
        for token in np.random.default_rng(0).permutation(40):
            one_by_one.write(1, k[[token]], v[[token]], slots[[token]])
        for block in range(8):
            assert np.array_equal(one_by_one.block(block), at_once.block(block))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", [0, 1])
def test_int8_scales_of_a_broken_token_poison_its_key_only(half: int, value: float) -> None:
    cache = make_cache(dtype="int8")
    rows = random_rows(2, 64), random_rows(2, 64)
    rows[half][0, 1, 5] = value
    cache.write(0, *rows, np.arange(2, dtype=np.int32))
    codes, scales = int8_rows(cache, 64)
    assert np.isnan(scales[0, 1, 0])
    assert np.isfinite(scales[1]).all() and np.isfinite(scales[0, [0, 2]]).all() and np.isfinite(scales[0, :, 1]).all()
    assert not codes[half, 1, 0].any()


def test_slots_and_shapes_out_of_range_are_refused() -> None:
    cache = make_cache()
    with pytest.raises(ValueError, match="slot"):
        cache.write(0, random_rows(1), random_rows(1), np.array([8 * 32], np.int32))
    with pytest.raises(ValueError, match="place is 2"):
        cache.write(2, random_rows(1), random_rows(1), np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="do not fit"):
        cache.write(0, random_rows(1, 128), random_rows(1, 128), np.zeros(1, np.int32))
