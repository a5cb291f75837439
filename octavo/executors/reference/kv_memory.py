"""The KV blocks of the reference executor: plain float32, one row of memory per block."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from octavo.program.operations import Program

Float32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]


def layer_offsets(program: Program) -> tuple[tuple[int, ...], int]:
    """(floats per token before each layer's part of a block, floats per token of a block).

    A block is as large as the largest group needs: groups may differ in heads, and the last one may be short.
    """
    ends = [0] * len(program.kv_groups)
    offsets = [0] * len(program.kv_layers)
    for number, group in enumerate(program.kv_groups):
        for layer in group.layers:
            offsets[layer] = ends[number]
            ends[number] += 2 * program.kv_layers[layer].kv_heads * program.kv_layers[layer].head_dim
    return tuple(offsets), max(ends, default=0)


class KVMemory:
    """Blocks 0 to num_blocks - 1. A block is, for each layer of its group, K then V, each
    [kv_heads, block_size, head_dim]."""

    def __init__(self, program: Program, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        offsets, floats_per_token = layer_offsets(program)
        self._block_bytes = floats_per_token * block_size * 4
        # An anonymous mapping: a page costs memory only once it is written, and can be given back.
        self._mapping = mmap.mmap(-1, max(num_blocks * self._block_bytes, 1))
        count = num_blocks * floats_per_token * block_size
        self._blocks = np.frombuffer(self._mapping, np.float32, count).reshape(num_blocks, -1)
        self._layers = [
            self._layer_view(offset, layer.kv_heads, layer.head_dim)
            for offset, layer in zip(offsets, program.kv_layers, strict=True)
        ]

    def _layer_view(self, offset: int, kv_heads: int, head_dim: int) -> Float32Array:
        first, floats = offset * self.block_size, 2 * kv_heads * head_dim * self.block_size
        part = self._blocks[:, first : first + floats]
        return part.reshape(len(part), 2, kv_heads, self.block_size, head_dim)

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
        memory[blocks, 0, :, offsets] = k
        memory[blocks, 1, :, offsets] = v

    def read(self, layer: int, blocks: Int32Array) -> tuple[Float32Array, Float32Array]:
        """K and V of whole blocks, in this order: [kv_heads, len(blocks) * block_size, head_dim] each."""
        gathered = self._layers[layer][blocks]
        n, _, kv_heads, block_size, head_dim = gathered.shape
        k, v = gathered.transpose(1, 2, 0, 3, 4).reshape(2, kv_heads, n * block_size, head_dim)
        return k, v
