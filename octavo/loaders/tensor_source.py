"""A tensor as it lies in its file: mapped bytes, their kind, and what turns them into float32 values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.dequantize import BLOCK_FORMATS, dequantize_blocks

VALUES_PER_CHUNK = 1 << 20
"""Dequantisation works on about so many values at a time, to keep its temporaries small."""


class CheckpointError(ValueError):
    """A model file or directory cannot be loaded. The message names the file, and the tensor or key, and
    why."""


def byte_size(kind: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of `kind` and `shape`; its last dimension must be whole blocks."""
    values_per_block, bytes_per_block = BLOCK_FORMATS[kind]
    return prod(shape) // values_per_block * bytes_per_block


@dataclass(frozen=True, slots=True, eq=False)
class TensorSource:
    """One weight: where its bytes are, and how they become values. Nothing is copied before `dequantize`."""

    name: str
    """canonical name, such as layers.0.self_attn.q_proj.weight"""
    shape: tuple[int, ...]
    """row-major, [out, in] for a matrix"""
    kind: str
    """F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, or Q2_K to Q6_K"""
    raw: NDArray[np.uint8]
    """[byte_size(kind, shape)]: a read-only, contiguous view of the mapped file"""
    row_order: NDArray[np.int32] | None = None
    """Row i of the tensor is row row_order[i] of raw; None where they are the same. A row of a vector is a
    value."""
    offset: float = 0.0
    """added to every value: 1.0 for norms that multiply by 1 + weight"""

    @property
    def num_rows(self) -> int:
        """Product of all dimensions but the last; for a vector, which is never quantised, its values."""
        return self.shape[0] if len(self.shape) == 1 else prod(self.shape[:-1])

    def dequantize(self) -> NDArray[np.float32]:
        """All values: a new float32 array of `shape`, with row_order and offset applied."""
        return self.dequantize_rows(0, self.num_rows).reshape(self.shape)

    def dequantize_rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows start to stop - 1 as a new float32 array [stop - start, values of a row], row_order and
        offset applied.

        Raises IndexError where the rows are not all in the tensor.
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"{self.name}: rows {start} to {stop} are not within its {self.num_rows} rows")
        rows = self.raw.reshape(self.num_rows, -1)
        values_per_row = prod(self.shape) // self.num_rows
        out = np.empty((stop - start, values_per_row), dtype=np.float32)
        rows_per_chunk = max(1, VALUES_PER_CHUNK // values_per_row)
        for first in range(start, stop, rows_per_chunk):
            last = min(first + rows_per_chunk, stop)
            part = rows[first:last] if self.row_order is None else rows[self.row_order[first:last]]
            out[first - start : last - start] = dequantize_blocks(self.kind, part.reshape(-1)).reshape(
                last - first, values_per_row
            )
        if self.offset:
            out += np.float32(self.offset)
        return out
