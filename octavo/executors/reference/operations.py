"""Every operation in numpy: the specification of what an executor computes.

x, k, v, q are [rows, columns] float32 views of the step's buffers; all arithmetic is float32.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step
from octavo.executors.reference.kv_memory import KVMemory
from octavo.program.operations import KVLayer, Rope
from octavo.program.rope import cos_sin

Float32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]


def embed(token_ids: Int32Array, weight: Float32Array, scale: float) -> Float32Array:
    """[T, width] rows of weight [vocab, width]."""
    return weight[token_ids] * np.float32(scale)


def rms_norm(x: Float32Array, weight: Float32Array, eps: float, heads: int) -> Float32Array:
    """Norms each of the row's `heads` parts; weight [columns / heads]."""
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    mean = np.mean(parts * parts, axis=-1, keepdims=True)
    normed: Float32Array = parts / np.sqrt(mean + np.float32(eps)) * weight
    return normed.reshape(x.shape)


def linear(x: Float32Array, weight: Float32Array, bias: Float32Array | None) -> Float32Array:
    """x @ weight.T + bias; weight [out, in]."""
    product = x @ weight.T
    return product if bias is None else product + bias


def apply_rope(x: Float32Array, positions: Int32Array, heads: int, rope: Rope) -> Float32Array:
    """Column i of a head turns with column i + rotary_dim / 2; columns from rotary_dim on stay."""
    half = rope.rotary_dim // 2
    cos, sin = (table[:, None, :] for table in cos_sin(rope, positions))
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    left, right, rest = parts[..., :half], parts[..., half : 2 * half], parts[..., 2 * half :]
    return np.concatenate((left * cos - right * sin, right * cos + left * sin, rest), axis=-1).reshape(x.shape)


def write_kv(memory: KVMemory, step: Step, layer: int, kept: KVLayer, k: Float32Array, v: Float32Array) -> None:
    """Writes each token's k and v, [T, kv_heads * head_dim], at its slot."""
    for row, table in enumerate(step.block_tables[kept.group]):
        first, last = step.query_start_loc[row], step.query_start_loc[row + 1]
        positions = step.positions[first:last]
        blocks = _mapped(table, positions // memory.block_size, row)
        heads = (last - first, kept.kv_heads, kept.head_dim)
        offsets = positions % memory.block_size
        memory.write(layer, blocks, offsets, k[first:last].reshape(heads), v[first:last].reshape(heads))


def paged_attention(
    memory: KVMemory, step: Step, layer: int, kept: KVLayer, q: Float32Array, heads: int, scale: float
) -> Float32Array:
    """[T, heads * head_dim]: each sequence's tokens over its own blocks."""
    out = np.empty_like(q)
    for row, table in enumerate(step.block_tables[kept.group]):
        first, last = step.query_start_loc[row], step.query_start_loc[row + 1]
        if first == last:
            continue
        positions = step.positions[first:last]
        start = 0 if kept.window is None else max(0, int(positions[0]) - kept.window + 1)
        logical = np.arange(start // memory.block_size, int(positions[-1]) // memory.block_size + 1, dtype=np.int32)
        k, v = memory.read(layer, _mapped(table, logical, row))
        key_positions = logical[0] * memory.block_size + np.arange(k.shape[1], dtype=np.int32)
        visible = visibility(positions, key_positions, kept.window)
        queries = q[first:last].reshape(last - first, heads, kept.head_dim)
        out[first:last] = attend(queries, k, v, visible, scale).reshape(last - first, -1)
    return out


def visibility(positions: Int32Array, key_positions: Int32Array, window: int | None) -> npt.NDArray[np.bool_]:
    """[n, keys]: whether the token at a position sees a key: causal, at most window - 1 back."""
    distance = positions[:, None] - key_positions[None, :]
    reach = np.iinfo(np.int32).max if window is None else window
    return np.logical_and(distance >= 0, distance < reach)


def attend(
    q: Float32Array, k: Float32Array, v: Float32Array, visible: npt.NDArray[np.bool_], scale: float
) -> Float32Array:
    """softmax(q k^T * scale) v: q [n, heads, d]; k, v [kv_heads, keys, d]; result [n, heads, d].

    Query head h reads KV head h // (heads // kv_heads). Keys that nobody sees may hold anything.
    """
    n, heads, head_dim = q.shape
    kv_heads = len(k)
    grouped = q.reshape(n, kv_heads, heads // kv_heads, head_dim).transpose(1, 2, 0, 3)
    scores = grouped @ k[:, None].transpose(0, 1, 3, 2) * np.float32(scale)
    scores = np.where(visible, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    seen_by_some = np.any(visible, axis=0, keepdims=True).T
    out: Float32Array = weights @ np.where(seen_by_some, v, np.float32(0))[:, None]
    return out.transpose(2, 0, 1, 3).reshape(n, heads, head_dim)


def gated_activation(gate: Float32Array, up: Float32Array, activation: str) -> Float32Array:
    """activation(gate) * up."""
    if activation == "silu":
        # exp of minus the magnitude cannot overflow.
        small = np.exp(-np.abs(gate))
        activated = gate * np.where(gate >= 0, np.ones_like(small), small) / (small + 1.0)
    else:
        inner = (gate + gate * gate * gate * 0.044715) * math.sqrt(2 / math.pi)
        activated = gate * (np.tanh(inner) + 1.0) * 0.5
    gated: Float32Array = np.multiply(activated, up)
    return gated


def _mapped(table: Int32Array, logical: Int32Array, row: int) -> Int32Array:
    """Block ids of logical blocks. An unmapped one is a mistake of the caller, never read as something."""
    if len(logical) and int(logical.max()) >= len(table):
        raise ValueError(f"sequence {row}: logical block {logical.max()} is past its table of {len(table)}")
    blocks: Int32Array = table[logical]
    if (blocks < 0).any():
        raise ValueError(f"sequence {row}: logical block {logical[blocks < 0][0]} is needed but not mapped")
    return blocks
