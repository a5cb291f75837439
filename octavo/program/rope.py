"""Rotary tables: inverse frequencies equal to those of Hugging Face transformers.

All arithmetic is in float32 in the order of transformers, as angles at position 8,000 already show the last
bit. For the same reason an executor computes an angle as float32(position) * float32(inv_freq), rounded to
float32.

The dynamic type. Transformers chooses the frequencies by the length of the sequence so far, so that K
written early is rotated otherwise than K written late: what a token sees would depend on how the sequence
was cut into steps, and cached blocks could not be shared. Here the frequencies depend on one length, chosen
when the program is built: the longest context that it serves. Up to the original length (the default) this
is plain rope and equals transformers exactly; built for more, it equals one transformers forward of that
many tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.program.operations import Rope

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Request:
    head_dim: int
    theta: float
    scaling: Mapping[str, Any]
    max_position_embeddings: int
    length: int

    def number(self, key: str) -> float:
        value = self.scaling.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            kind = self.scaling.get("rope_type")
            raise ValueError(f"rope_scaling.{key} is {value!r}; rope_type {kind!r} needs a number")
        return float(value)

    def positive(self, key: str) -> float:
        value = self.number(key)
        if value <= 0:
            raise ValueError(f"rope_scaling.{key} is {value}, must be above 0")
        return value

    def optional(self, key: str) -> float | None:
        return None if self.scaling.get(key) is None else self.number(key)

    def original_length(self) -> float:
        value = self.optional("original_max_position_embeddings")
        return self.max_position_embeddings if value is None else value


def make_rope(
    head_dim: int,
    theta: float,
    scaling: Mapping[str, Any] | None,
    max_position_embeddings: int,
    length: int | None = None,
) -> Rope:
    """The rotary table of one kind of layer.

    scaling is a config's rope_scaling with "rope_type": default, linear, dynamic, yarn, llama3, or
    llama3_factors (a GGUF file's rope_freqs tensor as "factors": head_dim / 2 divisors). length matters to
    dynamic only: the longest context to be served, max_position_embeddings where None.

    Raises ValueError for an odd head_dim, an unknown type, and a missing or unusable key.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}; rope needs an even one")
    if not (math.isfinite(theta) and theta > 1):
        raise ValueError(f"rope_theta is {theta}, must be a number above 1")
    scaling = scaling or {"rope_type": "default"}
    rope_type = scaling.get("rope_type")
    if rope_type not in _TYPES:
        raise ValueError(f"rope_type {rope_type!r} is unknown; known are {', '.join(sorted(_TYPES))}")
    if scaling.get("partial_rotary_factor") not in (None, 1, 1.0):
        factor = scaling["partial_rotary_factor"]
        raise ValueError(f"rope_scaling.partial_rotary_factor is {factor!r}; only 1.0 is supported")
    request = _Request(head_dim, theta, scaling, max_position_embeddings, length or max_position_embeddings)
    inv_freq, attention_scaling = _TYPES[rope_type](request)
    return Rope(tuple(float(f) for f in inv_freq), attention_scaling, head_dim)


def cos_sin(rope: Rope, positions: npt.NDArray[np.int32]) -> tuple[Float32Array, Float32Array]:
    """([T, rotary_dim / 2], the same): cosines and sines of each position, attention_scaling in them."""
    angles = positions.astype(np.float32)[:, None] * np.array(rope.inv_freq, np.float32)
    scaling = np.float32(rope.attention_scaling)
    return np.cos(angles) * scaling, np.sin(angles) * scaling


def _powers(theta: float, head_dim: int) -> Float32Array:
    """theta ** (2i / head_dim), exponent and result rounded to float32."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers: Float32Array = (np.float64(np.float32(theta)) ** exponents.astype(np.float64)).astype(np.float32)
    return powers


def _plain(theta: float, head_dim: int) -> Float32Array:
    return np.float32(1.0) / _powers(theta, head_dim)


def _default(r: _Request) -> tuple[Float32Array, float]:
    return _plain(r.theta, r.head_dim), 1.0


def _linear(r: _Request) -> tuple[Float32Array, float]:
    return _plain(r.theta, r.head_dim) / np.float32(r.positive("factor")), 1.0


def _dynamic(r: _Request) -> tuple[Float32Array, float]:
    if r.head_dim == 2:
        raise ValueError("head_dim is 2; rope_type 'dynamic' needs at least 4")
    factor = r.positive("factor")
    length = max(r.length, r.max_position_embeddings)
    stretch = factor * length / r.max_position_embeddings - (factor - 1)
    theta = r.theta * stretch ** (r.head_dim / (r.head_dim - 2)) if stretch != 1 else r.theta
    return _plain(theta, r.head_dim), 1.0


def _yarn(r: _Request) -> tuple[Float32Array, float]:
    original = r.original_length()
    given = r.optional("factor")
    factor = r.max_position_embeddings / original if given is None else given
    powers = _powers(r.theta, r.head_dim)
    low, high = _yarn_range(r, original)
    ramp = (np.arange(r.head_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low)
    kept = np.float32(1.0) - np.clip(ramp, 0, 1)
    interpolated = np.float32(1.0) / (np.float32(factor) * powers)
    return interpolated * (np.float32(1.0) - kept) + kept / powers, _yarn_attention_scaling(r, factor)


def _yarn_range(r: _Request, original: float) -> tuple[float, float]:
    """The columns between which yarn goes over from the plain to the interpolated frequency."""

    def column(rotations: float) -> float:
        return r.head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(r.theta))

    low = column(r.optional("beta_fast") or 32)
    high = column(r.optional("beta_slow") or 1)
    if r.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, r.head_dim - 1)
    return low, high + 0.001 if low == high else high


def _yarn_attention_scaling(r: _Request, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = r.optional("attention_factor")
    if given is not None:
        return given
    top, bottom = r.optional("mscale"), r.optional("mscale_all_dim")
    return mscale(top) / mscale(bottom) if top and bottom else mscale(1.0)


def _llama3(r: _Request) -> tuple[Float32Array, float]:
    factor = np.float32(r.positive("factor"))
    low, high = r.positive("low_freq_factor"), r.positive("high_freq_factor")
    if low >= high:
        raise ValueError(f"rope_scaling.low_freq_factor {low} must be below high_freq_factor {high}")
    original = r.original_length()
    plain = _plain(r.theta, r.head_dim)
    wavelength = np.float32(2 * math.pi) / plain
    smooth = (np.float32(original) / wavelength - np.float32(low)) / np.float32(high - low)
    blended = (np.float32(1.0) - smooth) * plain / factor + smooth * plain
    slow, fast = wavelength > np.float32(original / low), wavelength < np.float32(original / high)
    return np.where(slow, plain / factor, np.where(fast, plain, blended)), 1.0


def _llama3_factors(r: _Request) -> tuple[Float32Array, float]:
    factors = np.asarray(r.scaling.get("factors", ()), dtype=np.float32)
    if factors.shape != (r.head_dim // 2,) or not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(
            f"rope_scaling.factors has shape {list(factors.shape)}; "
            f"needs {r.head_dim // 2} finite numbers above 0 (head_dim / 2)"
        )
    return _plain(r.theta, r.head_dim) / factors, 1.0


_TYPES: dict[str, Callable[[_Request], tuple[Float32Array, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "llama3_factors": _llama3_factors,
}
