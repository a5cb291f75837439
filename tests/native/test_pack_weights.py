"""Packing of file tensors.

The golden values of every GGUF kind in data/gguf_blocks.npz were made from random blocks
with the gguf package.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo import _native

GOLDEN = np.load(Path(__file__).parent / "data" / "gguf_blocks.npz")
KINDS = sorted({name.rsplit("_", 1)[0] for name in GOLDEN.files})
N, K = 3, 512


@pytest.fixture(scope="module")
def team() -> _native.ThreadTeam:
    return _native.ThreadTeam(2)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_decode_to_the_golden_floats(kind: str, team: _native.ThreadTeam) -> None:
    weight = _native.PackedWeight.pack("f32", kind, GOLDEN[f"{kind}_raw"], N, K, team)
    assert np.array_equal(weight.dequantize(), GOLDEN[f"{kind}_values"])


@pytest.mark.parametrize("kind", KINDS)
def test_integer_formats_stay_within_three_per_mille_of_the_file(kind: str, team: _native.ThreadTeam) -> None:
    fmt = _native.formats_for(kind)[0]
    weight = _native.PackedWeight.pack(fmt, kind, GOLDEN[f"{kind}_raw"], N, K, team)
    golden = GOLDEN[f"{kind}_values"].astype(np.float64)
    error = weight.dequantize() - golden
    relative = np.sqrt((error**2).mean(axis=1) / (golden**2).mean(axis=1))
    assert relative.max() <= 0.003, relative
    w_int, scales = weight.integers()
    assert np.abs(w_int.astype(np.int32)).max() <= (8191 if fmt.startswith("w4") else 32767)
    assert np.array_equal(weight.dequantize(), w_int.astype(np.float32) * scales)


def test_zeros_of_symmetric_four_bit_blocks_stay_zeros(team: _native.ThreadTeam) -> None:
    weight = _native.PackedWeight.pack("w4symmetric", "Q4_0", GOLDEN["Q4_0_raw"], N, K, team)
    assert np.array_equal(weight.dequantize() == 0, GOLDEN["Q4_0_values"] == 0)


def test_a_whole_row_of_zeros_stays_zeros(team: _native.ThreadTeam) -> None:
    for kind in KINDS:
        raw = np.zeros_like(GOLDEN[f"{kind}_raw"])
        weight = _native.PackedWeight.pack(_native.formats_for(kind)[0], kind, raw, N, K, team)
        assert not weight.dequantize().any(), kind


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_float_tensors_keep_their_values(kind: str, team: _native.ThreadTeam) -> None:
    values = np.random.default_rng(1).standard_normal((33, 50)).astype(np.float32)
    raw = values.view(np.uint8)
    if kind == "F16":
        raw, values = values.astype(np.float16).view(np.uint8), values.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        bits = values.view(np.uint32) >> 16
        raw, values = bits.astype(np.uint16).view(np.uint8), (bits << 16).view(np.float32)
    weight = _native.PackedWeight.pack("f32", kind, raw, 33, 50, team)
    assert np.array_equal(weight.dequantize(), values)
    rounded = _native.PackedWeight.pack("bf16", kind, raw, 33, 50, team).dequantize()
    assert np.abs(rounded - values).max() <= np.abs(values).max() / 256
    assert kind != "BF16" or np.array_equal(rounded, values)


@pytest.mark.parametrize("fmt", ["f32", "w4"])
def test_row_order_picks_the_rows_of_the_file(fmt: str, team: _native.ThreadTeam) -> None:
    raw = np.concatenate([GOLDEN["Q4_1_raw"]] * 7)  # 21 rows: more than one panel
    order = np.random.default_rng(2).permutation(21).astype(np.int32)
    plain = _native.PackedWeight.pack(fmt, "Q4_1", raw, 21, K, team).dequantize()
    ordered = _native.PackedWeight.pack(fmt, "Q4_1", raw, 21, K, team, row_order=order).dequantize()
    assert np.array_equal(ordered, plain[order])


def test_weights_may_share_an_arena(team: _native.ThreadTeam) -> None:
    arena = _native.WeightArena()
    raw = GOLDEN["Q8_0_raw"]
    weights = [_native.PackedWeight.pack("w8", "Q8_0", raw, N, K, team, arena=arena) for _ in range(3)]
    reserved = arena.reserved_bytes
    del arena
    assert reserved >= sum(weight.nbytes for weight in weights)
    assert all(np.array_equal(weight.dequantize(), weights[0].dequantize()) for weight in weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
def test_a_scale_that_is_not_finite_is_an_error_that_names_the_row(
    kind: str, bits: int, team: _native.ThreadTeam
) -> None:
    raw = GOLDEN[f"{kind}_raw"].copy()
    at = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(kind, 0)
    raw[2, at : at + 2] = np.array([bits], dtype=np.uint16).view(np.uint8)
    for fmt in _native.formats_for(kind):
        with pytest.raises(ValueError, match="row 2 holds a scale or value that is not finite"):
            _native.PackedWeight.pack(fmt, kind, raw, N, K, team)


def test_wrong_arguments_are_refused_with_the_limit(team: _native.ThreadTeam) -> None:
    raw = GOLDEN["Q4_1_raw"]
    pack = _native.PackedWeight.pack
    with pytest.raises(ValueError, match="bytes of raw is 960, must be 1280"):
        pack("w4", "Q4_1", raw, 4, K, team)
    with pytest.raises(ValueError, match="a multiple of 32"):
        pack("w4", "Q4_1", raw, 3, 500, team)
    with pytest.raises(ValueError, match="format is 'w8', a Q4_1 tensor can be packed as: w4 f32 bf16"):
        pack("w8", "Q4_1", raw, N, K, team)
    with pytest.raises(ValueError, match="format is 'w5', must be one of: f32 bf16 w4"):
        pack("w5", "Q4_1", raw, N, K, team)
    with pytest.raises(ValueError, match="kind is 'IQ4_XS', must be one of: F32 F16"):
        pack("w4", "IQ4_XS", raw, N, K, team)
    with pytest.raises(ValueError, match=r"row_order\[1\] is 3, must be between 0 and 2"):
        pack("w4", "Q4_1", raw, N, K, team, row_order=np.array([0, 3, 1], dtype=np.int32))
    with pytest.raises(ValueError, match="length of bias is 2, must be 3"):
        pack("w4", "Q4_1", raw, N, K, team, bias=np.zeros(2, dtype=np.float32))
