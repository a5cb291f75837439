"""Block tables: a sequence's list of block ids per KV group, and the arrays that a step sees of them."""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]

UNMAPPED = -1
"""Entry of a block that lies behind the sliding window"""


class BlockTable:
    """Logical block number -> block id for one sequence and one KV group.

    Entries before first_mapped are UNMAPPED, all others are block ids that this table has one reference to.
    """

    __slots__ = ("blocks", "first_mapped")

    def __init__(self, blocks: list[int], first_mapped: int = 0) -> None:
        self.blocks = blocks
        self.first_mapped = first_mapped

    @property
    def num_mapped(self) -> int:
        """Blocks that the table refers to."""
        return len(self.blocks) - self.first_mapped


class HasTables(Protocol):
    """What BlockTableRows knows of a sequence."""

    tables: tuple[BlockTable, ...]
    row: int
    """Its row of the arrays; -1 where it has none"""
    changed_from: int
    """Lowest logical block that changed since the row was written"""


UNCHANGED = 1 << 62


class BlockTableRows:
    """One int32 array [rows, columns] per KV group that mirrors the tables of running sequences.

    A row is written when its table changes, which is once in block_size tokens, not once a step.
    """

    def __init__(self, num_groups: int, max_rows: int) -> None:
        self._free_rows = list(range(max_rows - 1, -1, -1))
        self._max_rows = max_rows
        self._arrays = [np.full((max_rows, 16), UNMAPPED, np.int32) for _ in range(num_groups)]
        self._changed: list[HasTables] = []
        self._gathered: tuple[Int32Array, ...] = ()
        self._gathered_rows: list[int] = []

    @property
    def max_rows(self) -> int:
        """How many sequences can have tables at once."""
        return self._max_rows

    @property
    def num_free(self) -> int:
        """Rows without an owner."""
        return len(self._free_rows)

    @property
    def have_changed(self) -> bool:
        """Whether any table has changed since the last gather()."""
        return bool(self._changed)

    def change(self, sequence: HasTables, first: int) -> None:
        """The table of a sequence is another one from logical block `first` on."""
        if sequence.changed_from == UNCHANGED:
            self._changed.append(sequence)
        if first < sequence.changed_from:
            sequence.changed_from = first

    def gather(self, sequences: Series[HasTables], num_blocks: int) -> tuple[Int32Array, ...]:
        """The tables of `sequences`, one C-contiguous [R, num_blocks] array per KV group: those of the last call where
        nothing has changed. Nobody writes them."""
        if num_blocks > self._arrays[0].shape[1]:
            self._widen(num_blocks)
        changed, self._changed = self._changed, []
        for sequence in changed:
            if sequence.changed_from != UNCHANGED:  # else it has given its blocks back since then
                self._write(sequence)
        rows = [sequence.row for sequence in sequences]
        if changed or rows != self._gathered_rows or num_blocks != self._gathered[0].shape[1]:
            index = np.array(rows, np.intp)
            self._gathered = tuple(np.ascontiguousarray(array[index, :num_blocks]) for array in self._arrays)
            self._gathered_rows = rows
        return self._gathered

    def written(self, sequence: HasTables) -> list[Int32Array] | None:
        """A sequence's row of each array; None where it is still to be written."""
        return None if sequence.changed_from != UNCHANGED else [array[sequence.row] for array in self._arrays]

    def free(self, sequence: HasTables) -> None:
        """Takes a sequence's row back, if it has one; its tables are gone."""
        sequence.changed_from = UNCHANGED
        if sequence.row >= 0:
            self._free_rows.append(sequence.row)
            sequence.row = -1

    def _write(self, sequence: HasTables) -> None:
        start = sequence.changed_from
        if sequence.row < 0:
            sequence.row = self._free_rows.pop()
            start = 0
        for array, table in zip(self._arrays, sequence.tables, strict=True):
            row = array[sequence.row]
            end = len(table.blocks)
            if end > len(row):
                self._widen(end)
                return self._write(sequence)
            row[start:end] = table.blocks[start:]
            row[end:] = UNMAPPED
        sequence.changed_from = UNCHANGED
        return None

    def _widen(self, columns: int) -> None:
        width = self._arrays[0].shape[1]
        while width < columns:
            width *= 2
        for group, array in enumerate(self._arrays):
            wider = np.full((self._max_rows, width), UNMAPPED, np.int32)
            wider[:, : array.shape[1]] = array
            self._arrays[group] = wider
