"""Rows of figures as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A right-aligned table; the columns are the keys of the first row."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = [names, *([_cell(name, row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{value:.4f}"
    return f"{value:.1f}"
