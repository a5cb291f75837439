"""From float32 values to the blocks of a tensor kind: the other direction of octavo.loaders.dequantize.

A block holds 32 consecutive values of a row. With 4 bits its grid is not simply the one that reaches the extremes: a
few narrower ones are tried too, each improved by least squares, and the one with the least squared error is taken.
Errors may count by the importance of their input: an output of a linear is a sum over its inputs, and what is
multiplied by large ones must be exact. Arrays are worked on as [32, blocks], so that sums over a block run along
whole rows of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Places = NDArray[np.intp]

VALUES_PER_BLOCK: Final = 32
LARGEST: Final = 65504.0
"""the largest float16: no value whose block needs a larger scale or minimum can be stored"""

_BLOCKS_PER_CHUNK: Final = 1 << 11
"""64 Ki values: their temporaries stay in a core's second-level cache"""
_CUTS: Final = ((0.0, 0.0), (0.05, 0.05), (0.0, 0.06), (0.06, 0.0))
"""What each first grid leaves out below and above, as a share of the block's range"""
_ROUNDS: Final = 3
"""of rounding to a grid and fitting the grid to the codes"""


def quantize_blocks(kind: str, values: Floats, importance: Floats | None = None) -> Bytes:
    """Blocks of `kind` ("Q8_0" or "Q4_1") for finite values [rows, k], k a multiple of 32: bytes
    [rows * k / 32 * bytes_per_block].

    importance: [k], above 0: how much the squared errors of a column count; None: all alike. Q8_0 has no use for it.
    The same bytes however the rows are cut into calls. Raises ValueError where a value is not finite, or is too
    large for the kind's float16 scale.
    """
    blocks = values.reshape(-1, VALUES_PER_BLOCK)
    columns = np.ones((1, VALUES_PER_BLOCK), np.float32)
    if importance is not None:
        columns = importance.reshape(-1, VALUES_PER_BLOCK)
    encode = _ENCODERS[kind]
    parts = []
    for first in range(0, len(blocks), _BLOCKS_PER_CHUNK):
        x = np.ascontiguousarray(blocks[first : first + _BLOCKS_PER_CHUNK].T)
        largest = float(np.abs(x).max())
        if not largest <= LARGEST:  # NaN fails every comparison
            problem = "is not finite" if not np.isfinite(x).all() else f"is {largest:.3g}, above {LARGEST:g}"
            raise ValueError(f"holds a value that {problem}")
        places = np.arange(first, first + x.shape[1]) % len(columns)
        parts.append(encode(x, columns, places))
    return np.concatenate(parts).reshape(-1) if parts else np.empty(0, np.uint8)


def _q8_0(x: Floats, columns: Floats, places: Places) -> Bytes:
    """d f16, 32 int8: d * q."""
    largest = np.maximum(x.max(axis=0), -x.min(axis=0))
    scale = (largest / np.float32(127)).astype(np.float16)
    # Where d was rounded down so far that the largest value would be cut, the next one serves.
    short = scale.astype(np.float32) * np.float32(127.5) < largest
    scale[short] = np.nextafter(scale[short], np.float16(np.inf))
    codes = np.rint(x * _inverse(scale.astype(np.float32)))
    np.clip(codes, -127, 127, out=codes)
    return np.concatenate([_half_bytes(scale), codes.astype(np.int8).T.view(np.uint8)], axis=1)


def _q4_1(x: Floats, columns: Floats, places: Places) -> Bytes:
    """d f16, m f16, 16 bytes of nibbles: d * q + m."""
    scale, low = _best_affine(x, np.ascontiguousarray(columns[places].T))
    d, m = scale.astype(np.float16), low.astype(np.float16)
    codes = _codes(x, d.astype(np.float32), m.astype(np.float32))
    return np.concatenate([_half_bytes(d), _half_bytes(m), _nibbles(codes)], axis=1)


def _best_affine(x: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(d, m) of each block with little weighted squared error of d * q + m for codes q from 0 to 15.

    x, weight: [32, blocks].
    """
    total = weight.sum(axis=0)
    mean = np.einsum("ij,ij->j", x, weight) / total
    centred = x - mean  # sums of what is far from 0 would lose the differences
    weighted = centred * weight
    lowest = centred.min(axis=0)
    span = centred.max(axis=0) - lowest
    best = np.zeros_like(lowest), lowest.copy()
    best_gain = np.full_like(lowest, -np.inf)
    for below, above in _CUTS:
        scale, low = span * np.float32((1 - below - above) / 15), lowest + span * np.float32(below)
        for _ in range(_ROUNDS):
            q = _codes(centred, scale, low)
            weighted_q = q * weight
            sum_q = weighted_q.sum(axis=0)
            spread = np.einsum("ij,ij->j", weighted_q, q) - sum_q * sum_q / total
            shared = np.einsum("ij,ij->j", weighted, q)
            scale = shared * _inverse(spread)
            low = -scale * sum_q / total
            gain = scale * shared  # what this fit takes away from the block's variance
        better = gain > best_gain
        for kept, new in ((best_gain, gain), (best[0], scale), (best[1], low)):
            np.copyto(kept, new, where=better)
    return best[0], np.clip(best[1] + mean, -LARGEST, LARGEST)


def _codes(x: Floats, scale: Floats, low: Floats) -> Floats:
    """The nearest code from 0 to 15 of each value, as whole floats."""
    codes = x - low
    codes *= _inverse(scale)
    np.rint(codes, out=codes)
    np.clip(codes, 0, 15, out=codes)
    return codes


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where that is no number: the codes of such a block do not matter."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse: Floats = np.float32(1) / scale
    inverse[~np.isfinite(inverse)] = 0
    return inverse


def _half_bytes(halves: NDArray[np.float16]) -> Bytes:
    """[n] -> [n, 2]."""
    return halves.astype("<f2").view(np.uint8).reshape(-1, 2)


def _nibbles(codes: Floats) -> Bytes:
    """Codes 0 to 15 [32, n] -> [n, 16]: byte j holds code j in its low, code j + 16 in its high half."""
    whole = codes.astype(np.uint8)
    return (whole[:16] | whole[16:] << np.uint8(4)).T


_ENCODERS: Final[Mapping[str, Callable[[Floats, Floats, Places], Bytes]]] = MappingProxyType(
    {"Q8_0": _q8_0, "Q4_1": _q4_1}
)
