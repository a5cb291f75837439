"""Which values may share a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from octavo.program.operations import Operation, Value


def operation_values(operation: Operation) -> dict[str, Value]:
    """The values that an operation reads or writes, by field name."""
    found = {field.name: getattr(operation, field.name) for field in fields(operation)}
    return {name: value for name, value in found.items() if isinstance(value, Value)}


def assign_buffers(
    operations: Sequence[Operation], widths: Sequence[int]
) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """The operations with one buffer per made value folded into few: (operations, width of each buffer).

    A buffer is free again after the last operation that names it, and is then taken by the next value of the same
    width and kind of rows. So no operation writes into a buffer that it reads, unless the recipe said so (rope,
    accumulate). A layer always takes what the layer before it took, as the lowest free number is chosen.
    """
    last_use = {value.buffer: step for step, op in enumerate(operations) for value in operation_values(op).values()}
    physical: dict[int, int] = {}
    made: list[tuple[int, str]] = []  # width and kind of rows of each buffer
    free: set[int] = set()
    result: list[Operation] = []
    for step, op in enumerate(operations):
        values = operation_values(op)
        for value in values.values():
            if value.buffer not in physical:
                physical[value.buffer] = _take((widths[value.buffer], value.rows), made, free)
        moved = {name: replace(value, buffer=physical[value.buffer]) for name, value in values.items()}
        result.append(replace(op, **moved))  # type: ignore[arg-type]
        free |= {physical[v.buffer] for v in values.values() if last_use[v.buffer] == step}
    return tuple(result), tuple(width for width, _ in made)


def _take(wanted: tuple[int, str], made: list[tuple[int, str]], free: set[int]) -> int:
    fitting = [number for number in sorted(free) if made[number] == wanted]
    if fitting:
        free.remove(fitting[0])
        return fitting[0]
    made.append(wanted)
    return len(made) - 1
