"""The shapes in which a program calls its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.program.operations import (
    Add,
    ApplyRope,
    GatedActivation,
    Linear,
    Logits,
    PagedAttention,
    Program,
    RmsNorm,
)


@dataclass(frozen=True, slots=True)
class RowShape:
    """An operation on rows of `width` values; `heads` parts of a row are worked on by themselves."""

    name: str
    """As _native.time_row_operation() knows it"""
    width: int
    heads: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model's kernels are called with, without its weights."""

    linears: tuple[tuple[int, int], ...]
    """(outputs, inputs) of every weight of the layers, in order"""
    head: tuple[int, int]
    """(vocabulary, inputs)"""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rows: tuple[RowShape, ...]
    """Each once"""

    @property
    def vocab_size(self) -> int:
        return self.head[0]


def model_shape(program: Program) -> ModelShape:
    """Of a program; attention is that of its first layer."""
    linears: list[tuple[int, int]] = []
    rows: dict[RowShape, None] = {}
    head, heads = (program.vocab_size, 0), 0
    for operation in program.operations:
        match operation:
            case Linear(x=x, weights=weights):
                linears += [(program.weights[name][0], program.weights[name][1]) for name in weights]
                rows[RowShape("prepare_integers", x.width, 1)] = None
            case Logits(weight=weight):
                head = program.weights[weight][0], program.weights[weight][1]
            case PagedAttention(heads=count):
                heads = heads or count
            case RmsNorm(x=x, heads=parts):
                rows[RowShape("rms_norm", x.width, parts)] = None
            case ApplyRope(x=x, heads=parts):
                rows[RowShape("rope", x.width, parts)] = None
            case GatedActivation(out=out, activation=activation):
                rows[RowShape(f"{activation}_mul", out.width, 1)] = None
            case Add(out=out):
                rows[RowShape("add", out.width, 1)] = None
    first = program.kv_layers[0]
    return ModelShape(
        linears=tuple(linears),
        head=head,
        layers=len(program.kv_layers),
        heads=heads,
        kv_heads=first.kv_heads,
        head_dim=first.head_dim,
        rows=tuple(rows),
    )
