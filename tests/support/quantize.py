"""Arrays as the quantised tensors of a GGUF file, the plain way."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class QuantizedTensor:
    """A tensor of kind Q8_0 or Q4_1: groups of 32, a float16 scale (and minimum) each."""

    kind: str
    shape: tuple[int, int]
    raw: npt.NDArray[np.uint8]
    values: Float32Array
    row_order: None = None

    def dequantize(self) -> Float32Array:
        return self.values


def quantize(array: Float32Array, kind: str) -> QuantizedTensor:
    """array: [n, k] with k a multiple of 32."""
    groups = array.reshape(len(array), -1, 32)
    if kind == "Q8_0":
        scale = (np.abs(groups).max(axis=2, keepdims=True) / 127).astype(np.float16)
        codes = np.round(groups / np.maximum(scale, 1e-8)).clip(-127, 127).astype(np.int8)
        parts = [scale.view(np.uint8), codes.view(np.uint8)]
        values = codes * scale.astype(np.float32)
    elif kind == "Q4_1":
        low = groups.min(axis=2, keepdims=True).astype(np.float16)
        scale = ((groups.max(axis=2, keepdims=True) - low) / 15).astype(np.float16)
        codes = np.round((groups - low) / np.maximum(scale, 1e-8)).clip(0, 15).astype(np.uint8)
        parts = [scale.view(np.uint8), low.view(np.uint8), codes[..., :16] | codes[..., 16:] << 4]
        values = codes * scale.astype(np.float32) + low.astype(np.float32)
    else:
        raise ValueError(kind)
    raw = np.concatenate(parts, axis=2).reshape(-1)
    return QuantizedTensor(kind, array.shape, raw, values.reshape(array.shape).astype(np.float32))
