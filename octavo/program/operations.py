"""The operations of a program: what a model recipe is made of.

A value is a matrix with one row per token of the step ("token" rows), or, after SelectRows, one row per wanted logit
("logits" rows). Values are float32 between operations, whatever the weights are. A value may be a range of the columns
of another one's buffer: a merged q/k/v projection is written once and read in three parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Value:
    """Columns [offset, offset + width) of buffer number `buffer`."""

    buffer: int
    offset: int
    width: int
    rows: Literal["tokens", "logits"]
    name: str


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary table: HF "half" layout (column i turns with column i + rotary_dim / 2).

    inv_freq holds rotary_dim / 2 inverse frequencies in radians per position, with all scaling (linear, yarn, llama3)
    already in them; cos and sin are multiplied by attention_scaling (yarn). For dynamic NTK the factors depend on the
    position's reach: see octavo.program.rope.
    """

    inv_freq: tuple[float, ...]
    attention_scaling: float
    rotary_dim: int


@dataclass(frozen=True, slots=True)
class Embed:
    """out[t] = weight[token_ids[t]] * scale."""

    out: Value
    weight: str
    """[vocab, width]"""
    scale: float


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Each of `heads` equal parts of a row on its own: out = x / sqrt(mean(x^2) + eps) * weight (heads is 1 but for
    q/k norms). The sum is taken in float32. out may be x."""

    out: Value
    x: Value
    weight: str
    """[width / heads]; a family whose norm multiplies by 1 + weight has the 1 added when the weight is loaded."""
    eps: float
    heads: int


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x @ concatenate(weights).T + concatenate(biases), or out += that where `accumulate`."""

    out: Value
    x: Value
    weights: tuple[str, ...]
    """Each [n_i, x.width]; sum of n_i = out.width."""
    biases: tuple[str | None, ...]
    """Parallel to weights: [n_i] or None."""
    accumulate: bool


@dataclass(frozen=True, slots=True)
class ApplyRope:
    """Rotates x in place: heads vectors of head_dim columns, the first rotary_dim of each."""

    x: Value
    heads: int
    head_dim: int
    rope: Rope


@dataclass(frozen=True, slots=True)
class WriteKV:
    """Writes K and V of the step's tokens into their slots of layer `layer`."""

    k: Value
    v: Value
    """[T, kv_heads * head_dim] each"""
    layer: int


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """out = softmax(q k^T * scale) v over the sequence's blocks, causal.

    Query head h reads KV head h // (heads // kv_heads). With a window w, position p sees positions p - w + 1 to p.
    """

    out: Value
    q: Value
    """[T, heads * head_dim] each"""
    layer: int
    heads: int
    scale: float


@dataclass(frozen=True, slots=True)
class GatedActivation:
    """out = activation(gate) * up. "gelu_tanh" is the tanh approximation."""

    out: Value
    gate: Value
    up: Value
    activation: Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Add:
    """out = a + b. out may be a."""

    out: Value
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class SelectRows:
    """The wanted rows: out[i] = x[logits_rows[i]]. Everything after works on logits rows."""

    out: Value
    x: Value


@dataclass(frozen=True, slots=True)
class Logits:
    """logits = x @ weight.T, the step's result; the last operation."""

    x: Value
    weight: str
    """[vocab, x.width]; the embedding's own name where they are tied."""


Operation = (
    Embed | RmsNorm | Linear | ApplyRope | WriteKV | PagedAttention | GatedActivation | Add | SelectRows | Logits
)


@dataclass(frozen=True, slots=True)
class KVLayer:
    """What one attention layer keeps per token."""

    kv_heads: int
    head_dim: int
    group: int
    """KV group: which block table"""
    index: int
    """place inside a block of that group, from 0"""
    window: int | None
    """sliding window in tokens; None for full attention"""


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that share a block table. All groups of a program have blocks of the same size in bytes, so that one pool
    serves them: a family with windows has several groups of as many layers each."""

    layers: tuple[int, ...]
    window: int | None


@dataclass(frozen=True, slots=True)
class Program:
    """A model: operations in order, with what they keep and what they read."""

    operations: tuple[Operation, ...]
    buffer_widths: tuple[int, ...]
    """columns of each buffer"""
    weights: dict[str, tuple[int, ...]]
    """name -> shape of every weight that the operations read"""
    kv_layers: tuple[KVLayer, ...]
    kv_groups: tuple[KVGroup, ...]
    layers_per_group: int
    """places in a block; a group with fewer layers leaves the last ones unused"""
    vocab_size: int
    max_model_len: int
    """longest context that the model was made for, in tokens"""
