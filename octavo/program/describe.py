"""A program as text that a reader sees the model in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

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
    WriteKV,
)

_LAYER_NAME = re.compile(r"^layers\.(\d+)\.")


def describe(program: Program) -> str:
    """One line per operation. Layers of the same form are printed once, under all their numbers."""
    lines = _header(program)
    for numbers, body in _sections(program):
        if numbers:
            lines.append(f"layers {_ranges(numbers)}:")
        lines.extend(("  " if numbers else "") + line for line in body)
    return "\n".join(lines)


def _header(program: Program) -> list[str]:
    numbers = sum(math.prod(shape) for shape in program.weights.values())
    lines = [
        f"program: {len(program.operations)} operations, {len(program.weights)} weights of {numbers:,} "
        f"numbers, vocabulary {program.vocab_size:,}, context {program.max_model_len:,}",
        f"buffers: {', '.join(str(width) for width in program.buffer_widths)} columns",
    ]
    for number, group in enumerate(program.kv_groups):
        window = "full attention" if group.window is None else f"window {group.window}"
        lines.append(f"KV group {number}: layers {_ranges(group.layers)}, {window}")
    return lines


def _sections(program: Program) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """(layer numbers, lines): numbers is empty for what stands before and after the layers."""
    runs: list[tuple[int | None, list[str]]] = [(None, [])]
    # Operations that name no weight belong to the layer that is being emitted.
    for op in program.operations:
        layer = None if isinstance(op, Embed | Logits) else _layer(op, runs[-1][0])
        if layer != runs[-1][0]:
            runs.append((layer, []))
        runs[-1][1].append(_line(op, program))
    sections: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for layer, lines in runs:
        numbers = sections.setdefault((layer is None, tuple(lines)), [])
        if layer is not None:
            numbers.append(layer)
    return [(tuple(numbers), lines) for (_, lines), numbers in sections.items()]


def _layer(op: Operation, current: int | None) -> int | None:
    if isinstance(op, WriteKV | PagedAttention):
        return op.layer
    if isinstance(op, Linear | RmsNorm):
        found = _LAYER_NAME.match(op.weights[0] if isinstance(op, Linear) else op.weight)
        return int(found[1]) if found else None
    return current


def _line(op: Operation, program: Program) -> str:
    match op:
        case Embed():
            scale = "" if op.scale == 1 else f" * {op.scale:g}"
            return f"{op.out.name} = embed {_weight(op.weight, program)}{scale}"
        case RmsNorm():
            each = "" if op.heads == 1 else f" each of {op.heads} heads,"
            return f"{op.out.name} = rms_norm {op.x.name},{each} {_weight(op.weight, program)} eps {op.eps:g}"
        case Linear():
            assign = "+=" if op.accumulate else "="
            names = [n for pair in zip(op.weights, op.biases, strict=True) for n in pair if n is not None]
            return f"{op.out.name} {assign} linear {op.x.name}, {', '.join(_weight(n, program) for n in names)}"
        case ApplyRope():
            return f"rope {op.x.name}, {op.heads} heads of {op.head_dim}, {_rope(op.rope)}"
        case WriteKV():
            kept = program.kv_layers[op.layer]
            return f"write_kv {op.k.name}, {op.v.name}: {kept.kv_heads} KV heads of {kept.head_dim}"
        case PagedAttention():
            window = program.kv_layers[op.layer].window
            reach = "full" if window is None else f"window {window}"
            return f"{op.out.name} = paged_attention {op.q.name}, {op.heads} heads, scale {op.scale:g}, {reach}"
        case GatedActivation():
            return f"{op.out.name} = {op.activation}({op.gate.name}) * {op.up.name}"
        case Add():
            return f"{op.out.name} = {op.a.name} + {op.b.name}"
        case SelectRows():
            return f"{op.out.name} = its rows whose logits are wanted"
        case Logits():
            return f"logits = {op.x.name}, {_weight(op.weight, program)}"


def _rope(rope: Rope) -> str:
    scaling = "" if rope.attention_scaling == 1 else f", times {rope.attention_scaling:g}"
    return f"slowest {rope.inv_freq[-1]:.4g} rad per position{scaling}"


def _weight(name: str, program: Program) -> str:
    shape = " x ".join(str(n) for n in program.weights[name])
    return f"{_LAYER_NAME.sub('', name)} [{shape}]"


def _ranges(numbers: Sequence[int]) -> str:
    """ "0-4, 6": ascending numbers with runs drawn together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
