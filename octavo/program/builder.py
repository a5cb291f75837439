"""The builder: what a model recipe writes a program with.

Every method emits one operation, checks its shapes at once, and returns the value that the operation makes.
The recipe sees fresh values only; build() lets values that are never alive together share a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.program.buffers import assign_buffers
from octavo.program.kv_groups import LayerShape, group_layers
from octavo.program.operations import (
    Add,
    ApplyRope,
    Embed,
    GatedActivation,
    Linear,
    Logits,
    Operation,
    PagedAttention,
    Program,
    RmsNorm,
    Rope,
    SelectRows,
    Value,
    WriteKV,
)

Rows = Literal["tokens", "logits"]


@dataclass(frozen=True, slots=True)
class Projection:
    """One matrix of a linear: weights `name`.weight [width, x.width] and, if `bias`, `name`.bias [width]."""

    name: str
    width: int
    bias: bool = False


class ProgramBuilder:
    """Collects the operations of one program. Shape errors are ValueErrors that name the value or the
    weight."""

    def __init__(self, vocab_size: int, max_model_len: int) -> None:
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._operations: list[Operation] = []
        self._buffer_widths: list[int] = []
        self._weights: dict[str, tuple[int, ...]] = {}
        self._layers: list[LayerShape] = []

    # Values

    def split(self, x: Value, *parts: tuple[str, int]) -> tuple[Value, ...]:
        """Views of x's columns, left to right: one per (name, width). The widths add up to x.width."""
        if sum(width for _, width in parts) != x.width:
            raise ValueError(f"split of {x.name}: widths {[w for _, w in parts]} do not add up to {x.width}")
        views = []
        offset = x.offset
        for name, width in parts:
            views.append(Value(x.buffer, offset, width, x.rows, name))
            offset += width
        return tuple(views)

    def kv_layer(self, kv_heads: int, head_dim: int, window: int | None = None) -> int:
        """Declares the next attention layer and returns its number, for write_kv and paged_attention."""
        self._layers.append(LayerShape(kv_heads, head_dim, window))
        return len(self._layers) - 1

    # Operations

    def embed(self, weight: str, width: int, scale: float = 1.0, name: str = "residual") -> Value:
        """[T, width]: rows of `weight` [vocab, width] times scale."""
        self._weight(weight, (self._vocab_size, width))
        out = self._value(width, "tokens", name)
        self._operations.append(Embed(out, weight, scale))
        return out

    def rms_norm(self, x: Value, weight: str, eps: float, name: str = "normed") -> Value:
        """[T, x.width]: each row normed, times `weight` [x.width]."""
        self._weight(weight, (x.width,))
        out = self._value(x.width, x.rows, name)
        self._operations.append(RmsNorm(out, x, weight, eps, heads=1))
        return out

    def head_norm(self, x: Value, weight: str, eps: float, heads: int) -> None:
        """Norms each of x's heads in place, times `weight` [x.width / heads] (q and k norms)."""
        self._weight(weight, (self._head_dim(x, heads, "head_norm"),))
        self._operations.append(RmsNorm(x, x, weight, eps, heads))

    def linear(self, x: Value, projections: Sequence[Projection], name: str) -> Value:
        """[T, sum of widths]: x times each matrix, side by side."""
        out = self._value(sum(p.width for p in projections), x.rows, name)
        self._linear(out, x, projections, accumulate=False)
        return out

    def linear_into(self, out: Value, x: Value, projection: Projection) -> None:
        """out += x times the matrix: a projection straight into the residual."""
        self._linear(out, x, (projection,), accumulate=True)

    def rope(self, x: Value, heads: int, rope: Rope) -> None:
        """Rotates each of x's heads in place."""
        head_dim = self._head_dim(x, heads, "rope")
        if rope.rotary_dim > head_dim or rope.rotary_dim != 2 * len(rope.inv_freq):
            raise ValueError(
                f"rope of {x.name}: rotary_dim {rope.rotary_dim} with {len(rope.inv_freq)} frequencies "
                f"does not fit head_dim {head_dim}"
            )
        self._operations.append(ApplyRope(x, heads, head_dim, rope))

    def write_kv(self, k: Value, v: Value, layer: int) -> None:
        """Keeps k and v, [T, kv_heads * head_dim] each, in the slots of the step's tokens."""
        shape = self._layers[layer]
        for value in (k, v):
            self._expect_width("write_kv", value, shape.kv_heads * shape.head_dim)
        self._operations.append(WriteKV(k, v, layer))

    def paged_attention(self, q: Value, layer: int, heads: int, scale: float, name: str = "attended") -> Value:
        """[T, heads * head_dim]: attention of q over what the layer keeps."""
        shape = self._layers[layer]
        if heads % shape.kv_heads:
            raise ValueError(f"paged_attention: {heads} heads are not a multiple of {shape.kv_heads} KV heads")
        self._expect_width("paged_attention", q, heads * shape.head_dim)
        out = self._value(q.width, q.rows, name)
        self._operations.append(PagedAttention(out, q, layer, heads, scale))
        return out

    def gated_activation(
        self, gate: Value, up: Value, activation: Literal["silu", "gelu_tanh"], name: str = "gated"
    ) -> Value:
        """[T, gate.width]: activation(gate) * up."""
        self._expect_width("gated_activation", up, gate.width)
        out = self._value(gate.width, gate.rows, name)
        self._operations.append(GatedActivation(out, gate, up, activation))
        return out

    def add_into(self, out: Value, x: Value) -> None:
        """out += x."""
        self._expect_width("add_into", x, out.width)
        self._operations.append(Add(out, out, x))

    def select_rows(self, x: Value) -> Value:
        """[L, x.width]: the rows of x whose logits are wanted, by the same name."""
        if x.rows != "tokens":
            raise ValueError(f"select_rows: {x.name} has {x.rows} rows already")
        out = self._value(x.width, "logits", x.name)
        self._operations.append(SelectRows(out, x))
        return out

    def logits(self, x: Value, weight: str) -> None:
        """The result: x [L, width] times `weight` [vocab, width]. The last operation."""
        if x.rows != "logits":
            raise ValueError(f"logits: {x.name} has {x.rows} rows; select_rows comes first")
        self._weight(weight, (self._vocab_size, x.width))
        self._operations.append(Logits(x, weight))

    def build(self) -> Program:
        """The finished program. The builder is not used afterwards."""
        if not self._operations or not isinstance(self._operations[-1], Logits):
            raise ValueError("a program ends with logits")
        operations, buffer_widths = assign_buffers(self._operations, self._buffer_widths)
        kv_layers, kv_groups, layers_per_group = group_layers(self._layers)
        return Program(
            operations=operations,
            buffer_widths=buffer_widths,
            weights=self._weights,
            kv_layers=kv_layers,
            kv_groups=kv_groups,
            layers_per_group=layers_per_group,
            vocab_size=self._vocab_size,
            max_model_len=self._max_model_len,
        )

    # Helpers

    def _value(self, width: int, rows: Rows, name: str) -> Value:
        self._buffer_widths.append(width)
        return Value(len(self._buffer_widths) - 1, 0, width, rows, name)

    def _weight(self, name: str, shape: tuple[int, ...]) -> None:
        """Notes a weight. A second use (a tied head) must agree on the shape."""
        known = self._weights.setdefault(name, shape)
        if known != shape:
            raise ValueError(f"weight {name} is used as {list(known)} and as {list(shape)}")

    def _linear(self, out: Value, x: Value, projections: Sequence[Projection], accumulate: bool) -> None:
        if sum(p.width for p in projections) != out.width:
            raise ValueError(f"linear into {out.name}: widths do not add up to {out.width}")
        if out.rows != x.rows:
            raise ValueError(f"linear: {x.name} has {x.rows} rows, {out.name} {out.rows} rows")
        for p in projections:
            self._weight(f"{p.name}.weight", (p.width, x.width))
            if p.bias:
                self._weight(f"{p.name}.bias", (p.width,))
        weights = tuple(f"{p.name}.weight" for p in projections)
        biases = tuple(f"{p.name}.bias" if p.bias else None for p in projections)
        self._operations.append(Linear(out, x, weights, biases, accumulate))

    @staticmethod
    def _head_dim(x: Value, heads: int, operation: str) -> int:
        if x.width % heads:
            raise ValueError(f"{operation}: {x.name} has {x.width} columns, not a multiple of {heads} heads")
        return x.width // heads

    @staticmethod
    def _expect_width(operation: str, value: Value, width: int) -> None:
        if value.width != width:
            raise ValueError(f"{operation}: {value.name} has {value.width} columns, not {width}")
