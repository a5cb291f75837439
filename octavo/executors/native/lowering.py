"""Lowering: a program's operations, handed one by one to the native library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

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

if TYPE_CHECKING:
    from octavo._native import PackedWeight, PhaseList

PackWeight = Callable[[str, str | None], "PackedWeight"]
"""(weight name, bias name) -> the packed weight; called once for each place where the program reads it"""
ReadVector = Callable[[str], npt.NDArray[np.float32]]


def lower(program: Program, pack: PackWeight, read_vector: ReadVector, int8_activations: bool) -> PhaseList:
    """The native form of `program`, with its weights.

    int8_activations: linears with integer weights take 8-bit activations where takes_int8() says so.
    """
    from octavo import _native

    ropes = list(dict.fromkeys(op.rope for op in program.operations if isinstance(op, ApplyRope)))
    phases = _native.make_phase_list(
        buffer_widths=list(program.buffer_widths),
        ropes=[(list(rope.inv_freq), rope.attention_scaling) for rope in ropes],
        num_groups=len(program.kv_groups),
        places_per_block=program.layers_per_group,
        vocab_size=program.vocab_size,
    )
    for operation in program.operations:
        _lower_one(phases, program, operation, ropes, pack, read_vector, int8_activations)
    return phases


def takes_int8(linear: Linear) -> bool:
    """Whether a linear's activations may have 8 bits. For queries, keys and values, and for the LM head, they keep 14
    (docs/decisions/0008)."""
    return not linear.weights[0].endswith("q_proj.weight")


def _view(value: Value) -> tuple[int, int, int, bool]:
    return value.buffer, value.offset, value.width, value.rows == "logits"


def _lower_one(
    phases: PhaseList,
    program: Program,
    operation: Operation,
    ropes: list[Rope],
    pack: PackWeight,
    read: ReadVector,
    int8: bool,
) -> None:
    match operation:
        case Embed(out, weight, scale):
            phases.add_embed(_view(out), pack(weight, None), scale)
        case RmsNorm(out, x, weight, eps, heads):
            phases.add_rms_norm(_view(out), _view(x), read(weight), eps, heads)
        case Linear(out, x, weights, biases, accumulate) as linear:
            packed = [pack(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
            phases.add_linear(_view(out), _view(x), packed, accumulate, int8 and takes_int8(linear))
        case ApplyRope(x, heads, head_dim, rope):
            phases.add_rope(_view(x), heads, head_dim, ropes.index(rope))
        case WriteKV(k, v, layer):
            kv = program.kv_layers[layer]
            phases.add_write_kv(_view(k), _view(v), kv.group, kv.index, kv.kv_heads, kv.head_dim)
        case PagedAttention(out, q, layer, heads, scale):
            kv = program.kv_layers[layer]
            phases.add_attention(
                _view(out), _view(q), kv.group, kv.index, heads, kv.kv_heads, kv.head_dim, scale, kv.window or 0
            )
        case GatedActivation(out, gate, up, activation):
            phases.add_gated_activation(_view(out), _view(gate), _view(up), activation)
        case Add(out, a, b):
            phases.add_sum(_view(out), _view(a), _view(b))
        case SelectRows(out, x):
            phases.add_select_rows(_view(out), _view(x))
        case Logits(x, weight):
            phases.add_logits(_view(x), pack(weight, None))
