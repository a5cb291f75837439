"""The KV blocks of the reference executor, one row of memory per block: plain float32, or int8 with scales."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from octavo.program.operations import KVLayer, Program

Float32Array = npt.NDArray[np.float32]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
StoredDtype = Literal["float32", "int8"]

_TINIEST: Final = np.float32(1e-30)
"""A row whose magnitudes are all smaller counts as zeros."""


def row_bytes(layer: KVLayer, dtype: StoredDtype) -> int:
    """Bytes of one token's K (or V) of one head."""
    return 4 * layer.head_dim if dtype == "float32" else layer.head_dim + 4


def layer_offsets(program: Program, dtype: StoredDtype) -> tuple[tuple[int, ...], int]:
    """(bytes per token before each layer's part of a block, bytes per token of a block).

    A block is as large as the largest group needs: groups may differ in heads, and the last one may be short.
    """
    ends = [0] * len(program.kv_groups)
    offsets = [0] * len(program.kv_layers)
    for number, group in enumerate(program.kv_groups):
        for layer in group.layers:
            offsets[layer] = ends[number]
            ends[number] += 2 * program.kv_layers[layer].kv_heads * row_bytes(program.kv_layers[layer], dtype)
    return tuple(offsets), max(ends, default=0)


def encode_int8(x: Float32Array) -> tuple[Int8Array, Float32Array]:
    """(codes [..., d], scales [..., 1]) of rows x [..., d]: x ~ code * scale, the largest magnitude being 127.

    Rounded to nearest even. A row that is not finite has codes 0 and the scale NaN.
    """
    largest = np.abs(x).max(axis=-1, keepdims=True)
    finite, used = np.isfinite(largest), largest >= _TINIEST
    factor = np.float32(127) / np.where(finite & used, largest, np.float32(np.inf))
    codes = np.rint(np.where(finite, x, np.float32(0)) * factor).astype(np.int8)
    return codes, np.where(finite, np.where(used, largest / np.float32(127), np.float32(0)), np.float32(np.nan))


def rotate(x: Float32Array) -> Float32Array:
    """The Walsh-Hadamard transform, not normed, of rows [..., d] in blocks of the largest power of two that divides d.

    It spreads a single large number over its block, so that it does not take the others' resolution away. Applied
    twice it multiplies by the size of a block.
    """
    half = (x.shape[-1] & -x.shape[-1]) // 2
    while half:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack((first + second, first - second), axis=-2).reshape(x.shape)
        half //= 2
    return x


class KVMemory:
    """Blocks 0 to num_blocks - 1. A block is, for each layer of its group, K then V, each
    [kv_heads, block_size, head_dim]; in int8 their codes (K after its rotation), then a float32 scale for each row."""

    def __init__(self, program: Program, num_blocks: int, block_size: int, dtype: StoredDtype = "float32") -> None:
        self.block_size = block_size
        offsets, bytes_per_token = layer_offsets(program, dtype)
        self._block_bytes = bytes_per_token * block_size
        # An anonymous mapping: a page costs memory only once it is written, and can be given back.
        self._mapping = mmap.mmap(-1, max(num_blocks * self._block_bytes, 1))
        count = num_blocks * self._block_bytes
        self._blocks = np.frombuffer(self._mapping, np.uint8, count).reshape(num_blocks, -1)
        self._layers: list[npt.NDArray[Any]] = []
        self._scales: list[Float32Array] = []
        for offset, layer in zip(offsets, program.kv_layers, strict=True):
            shape = (2, layer.kv_heads, block_size, layer.head_dim)
            self._layers.append(self._view(offset * block_size, shape, dtype))
            if dtype == "int8":
                self._scales.append(self._view(offset * block_size + prod(shape), (*shape[:3], 1), "float32"))

    def _view(self, first: int, shape: tuple[int, ...], dtype: StoredDtype) -> npt.NDArray[Any]:
        """The part of every block that begins at byte `first`: [blocks, *shape]."""
        part = self._blocks[:, first : first + prod(shape) * np.dtype(dtype).itemsize]
        return part.view(dtype).reshape(len(self._blocks), *shape)

    def copy(self, copies: Int32Array) -> None:
        """Copies whole blocks, [C, 2] (source, destination), in order."""
        for source, destination in copies:
            self._blocks[destination] = self._blocks[source]

    def release(self, first: int, count: int) -> None:
        """Gives back the pages that lie wholly inside blocks [first, first + count)."""
        page = mmap.PAGESIZE
        start = -(-first * self._block_bytes // page) * page
        stop = (first + count) * self._block_bytes // page * page
        if stop > start and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def write(self, layer: int, blocks: Int32Array, offsets: Int32Array, k: Float32Array, v: Float32Array) -> None:
        """Keeps k and v, [n, kv_heads, head_dim] each, at (blocks[i], offsets[i])."""
        memory = self._layers[layer]
        if not self._scales:
            memory[blocks, 0, :, offsets] = k
            memory[blocks, 1, :, offsets] = v
            return
        for half, rows in enumerate((rotate(k), v)):
            codes, scales = encode_int8(rows)
            memory[blocks, half, :, offsets] = codes
            self._scales[layer][blocks, half, :, offsets] = scales

    def read(self, layer: int, blocks: Int32Array) -> tuple[Float32Array, Float32Array]:
        """K and V of whole blocks, in this order: [kv_heads, len(blocks) * block_size, head_dim] each."""
        gathered = self._layers[layer][blocks]
        if self._scales:
            gathered = gathered * self._scales[layer][blocks]
            block = gathered.shape[-1] & -gathered.shape[-1]
            gathered[:, 0] = rotate(gathered[:, 0]) / np.float32(block)
        n, _, kv_heads, block_size, head_dim = gathered.shape
        k, v = gathered.transpose(1, 2, 0, 3, 4).reshape(2, kv_heads, n * block_size, head_dim)
        return k, v
