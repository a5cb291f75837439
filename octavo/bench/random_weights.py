"""Packed weights with random values, for timing: one for each weight of a model, so that caches hold no more of them
than they would there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from octavo.native_library import native_library

if TYPE_CHECKING:
    from octavo._native import PackedWeight, ThreadTeam

_BLOCKS: dict[str, tuple[str, int, int, tuple[int, ...]]] = {
    # Format: the file's kind that becomes it, values and bytes of a block, where its half precision scales are.
    "w4": ("Q4_1", 32, 20, (0, 2)),
    "w4symmetric": ("Q4_0", 32, 18, (0,)),
    "w6": ("Q5_0", 32, 22, (0,)),
    "w6g16": ("Q6_K", 256, 210, (208,)),
    "w6affine": ("Q5_1", 32, 24, (0, 2)),
    "w6affine_g16": ("Q2_K", 256, 84, (80, 82)),
    "w8": ("Q8_0", 32, 34, (0,)),
}
_FLOATS = {"bf16": "BF16", "f32": "F32"}
FORMATS = (*_BLOCKS, *_FLOATS)


def random_weights(shapes: Iterable[tuple[int, int]], fmt: str, team: ThreadTeam) -> list[PackedWeight]:
    """A weight of format `fmt` for each (outputs, inputs); inputs are rounded up to whole blocks of the format.

    Weights of equal shape have equal values, in memory of their own. Raises ValueError for an unknown format.
    """
    if fmt not in FORMATS:
        raise ValueError(f"format={fmt!r}: must be one of {', '.join(FORMATS)}")
    native = native_library()
    arena = native.WeightArena()
    kind, values = (_BLOCKS[fmt][0], _BLOCKS[fmt][1]) if fmt in _BLOCKS else (_FLOATS[fmt], 1)
    made: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}
    weights: list[Any] = []
    for n, inputs in shapes:
        k = -(-inputs // values) * values
        if (n, k) not in made:
            made[n, k] = _raw(n, k, fmt)
        weights.append(native.PackedWeight.pack(fmt, kind, made[n, k], n, k, team, arena=arena))
    return weights


def _raw(n: int, k: int, fmt: str) -> npt.NDArray[np.uint8]:
    """The bytes of a file's tensor [n, k]."""
    rng = np.random.default_rng(n * k)
    if fmt in _FLOATS:
        values = rng.standard_normal((n, k), dtype=np.float32)
        if fmt == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).ravel()
        return values.view(np.uint8).ravel()
    _, block_values, block_bytes, scales = _BLOCKS[fmt]
    raw = rng.integers(0, 256, (n * k // block_values, block_bytes), dtype=np.uint8)
    for at in scales:
        raw[:, at : at + 2] = (rng.uniform(0.5, 1.0, len(raw)) * 0.01).astype(np.float16)[:, None].view(np.uint8)
    return raw
