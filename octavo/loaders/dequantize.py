"""The tensor kinds of GGUF and safetensors files, and their values as float32.

A quantised kind packs `values_per_block` consecutive values of a row into `bytes_per_block` bytes. Fields of
a block are little-endian and in the order that each function's docstring draws. Results equal the reference
of the format bit for bit: each value is made by the same float32 operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

BLOCK_FORMATS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "F32": (1, 4),
        "F16": (1, 2),
        "BF16": (1, 2),
        "Q8_0": (32, 34),
        "Q4_0": (32, 18),
        "Q4_1": (32, 20),
        "Q5_0": (32, 22),
        "Q5_1": (32, 24),
        "Q2_K": (256, 84),
        "Q3_K": (256, 110),
        "Q4_K": (256, 144),
        "Q5_K": (256, 176),
        "Q6_K": (256, 210),
    }
)
"""kind -> (values_per_block, bytes_per_block)"""


def dequantize_blocks(kind: str, raw: Bytes) -> Floats:
    """Values of whole blocks: raw [n * bytes_per_block] -> float32 [n * values_per_block], a new array."""
    values_per_block, bytes_per_block = BLOCK_FORMATS[kind]
    blocks = np.ascontiguousarray(raw).reshape(-1, bytes_per_block)
    # Untrusted bytes may hold any float16, NaN and infinity among them; those pass through as values.
    with np.errstate(invalid="ignore", over="ignore"):
        return _DEQUANTIZE[kind](blocks).reshape(len(blocks) * values_per_block)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of every block: [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes, group: int) -> Bytes:
    """4-bit codes: every `group` bytes hold first their low, then their high halves. [n, b] -> [n, 2 b]."""
    n, width = packed.shape
    out = np.empty((n, width // group, 2, group), dtype=np.uint8)
    grouped = packed.reshape(n, width // group, group)
    np.bitwise_and(grouped, 15, out=out[:, :, 0])
    np.right_shift(grouped, 4, out=out[:, :, 1])
    return out.reshape(n, 2 * width)


def _pairs(packed: Bytes) -> Bytes:
    """2-bit codes: every 32 bytes hold four runs of 32 codes, lowest bits first. [n, b] -> [n, 4 b]."""
    n, width = packed.shape
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    codes: Bytes = (packed.reshape(n, width // 32, 1, 32) >> shifts) & np.uint8(3)
    return codes.reshape(n, 4 * width)


def _bit_planes(packed: Bytes) -> Bytes:
    """Single bits: bit i of byte j belongs to value 32 i + j. [n, 32] -> [n, 256] of 0 and 1."""
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    bits: Bytes = (packed[:, None, :] >> shifts) & np.uint8(1)
    return bits.reshape(len(packed), 256)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(blocks: Bytes) -> Floats:
    """d f16, 32 int8: d * q."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _q4_0(blocks: Bytes) -> Floats:
    """d f16, 16 bytes of nibbles: d * (q - 8)."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:], 16).view(np.int8) - np.int8(8)).astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 16 bytes of nibbles: d * q + m."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:], 16).astype(np.float32) + _half(blocks, 2)


def _fifth_bit(blocks: Bytes, at: int) -> Bytes:
    """The 32 bits in four bytes from `at`, bit i for value i, as 0 and 16: [n, 32]."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _q5_0(blocks: Bytes) -> Floats:
    """d f16, 4 bytes of fifth bits, 16 bytes of nibbles: d * (q - 16)."""
    codes = _nibbles(blocks[:, 6:], 16) | _fifth_bit(blocks, 2)
    return _half(blocks, 0) * (codes.view(np.int8) - np.int8(16)).astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 4 bytes of fifth bits, 16 bytes of nibbles: d * q + m."""
    codes = _nibbles(blocks[:, 8:], 16) | _fifth_bit(blocks, 4)
    return _half(blocks, 0) * codes.astype(np.float32) + _half(blocks, 2)


def _q2_k(blocks: Bytes) -> Floats:
    """16 bytes of (scale, min) nibbles, 64 bytes of 2-bit codes, d f16, dmin f16: d * scale * q - dmin *
    min."""
    scales = blocks[:, :16]
    codes = _pairs(blocks[:, 16:80]).reshape(-1, 16, 16)
    scale = _half(blocks, 80) * (scales & 15).astype(np.float32)
    low = _half(blocks, 82) * (scales >> 4).astype(np.float32)
    return scale[:, :, None] * codes.astype(np.float32) - low[:, :, None]


def _q3_k(blocks: Bytes) -> Floats:
    """32 bytes of high bits, 64 of 2-bit codes, 12 of 6-bit scales, d f16: d * (scale - 32) * (q - 4)."""
    packed = blocks[:, 96:108]
    # Low four bits of scale i: nibble i of bytes 0-7 (low halves first); high two: 2-bit code i of bytes
    # 8-11.
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 4, 1)
    high = ((packed[:, None, 8:] >> shifts) & 3).reshape(-1, 16) << np.uint8(4)
    scales = (_nibbles(packed[:, :8], 8) | high).view(np.int8) - np.int8(32)
    codes = _pairs(blocks[:, 32:96]) | (_bit_planes(blocks[:, :32]) << np.uint8(2))
    scale = _half(blocks, 108) * scales.astype(np.float32)
    values = (codes.view(np.int8) - np.int8(4)).astype(np.float32)
    return scale[:, :, None] * values.reshape(-1, 16, 16)


def _scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minima in 12 bytes (Q4_K, Q5_K): two [n, 8].

    The first four of each are the low six bits of bytes 0-3 and 4-7; of the last four, bytes 8-11 hold the
    low four bits (scale in the low half) and the top two bits of bytes 0-3 and 4-7 the rest.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 2) & 48)], axis=1)
    mins = np.concatenate([second & 63, (third >> 4) | ((second >> 2) & 48)], axis=1)
    return scales, mins


def _affine_32(blocks: Bytes, codes: Bytes) -> Floats:
    """d f16, dmin f16, 12 bytes of scales and minima, and the codes [n, 256]: d * scale * q - dmin * min."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale = _half(blocks, 0) * scales.astype(np.float32)
    low = _half(blocks, 2) * mins.astype(np.float32)
    return scale[:, :, None] * codes.astype(np.float32).reshape(-1, 8, 32) - low[:, :, None]


def _q4_k(blocks: Bytes) -> Floats:
    """The head of _affine_32, 128 bytes of nibbles."""
    return _affine_32(blocks, _nibbles(blocks[:, 16:], 32))


def _q5_k(blocks: Bytes) -> Floats:
    """The head of _affine_32, 32 bytes of fifth bits, 128 bytes of nibbles."""
    return _affine_32(blocks, _nibbles(blocks[:, 48:], 32) | (_bit_planes(blocks[:, 16:48]) << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    """128 bytes of nibbles, 64 of 2-bit codes, 16 int8 scales, d f16: d * scale * (q - 32)."""
    codes = _nibbles(blocks[:, :128], 64) | (_pairs(blocks[:, 128:192]) << np.uint8(4))
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    values = (codes.view(np.int8) - np.int8(32)).astype(np.float32)
    return scale[:, :, None] * values.reshape(-1, 16, 16)


_DEQUANTIZE: Mapping[str, Callable[[Bytes], Floats]] = MappingProxyType(
    {
        "F32": _f32,
        "F16": _f16,
        "BF16": _bf16,
        "Q8_0": _q8_0,
        "Q4_0": _q4_0,
        "Q4_1": _q4_1,
        "Q5_0": _q5_0,
        "Q5_1": _q5_1,
        "Q2_K": _q2_k,
        "Q3_K": _q3_k,
        "Q4_K": _q4_k,
        "Q5_K": _q5_k,
        "Q6_K": _q6_k,
    }
)
