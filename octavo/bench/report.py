"""A measurement as one object for machines, and its rows as a table for people."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from octavo.bench.machine import machine_facts
from octavo.config import EngineOptions


def make_report(
    benchmark: str, rows: Sequence[Mapping[str, Any]], options: EngineOptions | None = None, **more: Any
) -> dict[str, Any]:
    """The shape that all benchmarks share; docs/benchmarks.md describes it. `more` are parts of one benchmark's own."""
    return {
        "benchmark": benchmark,
        "command": shlex.join(["octavo", *_without_key(sys.argv[1:])]),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "options": None if options is None else asdict(options),
        "rows": list(rows),
        **more,
    }


def _without_key(arguments: Sequence[str]) -> list[str]:
    """A command line that may be published."""
    shown = [argument if not argument.startswith("--key=") else "--key=..." for argument in arguments]
    return ["..." if place and shown[place - 1] == "--key" else argument for place, argument in enumerate(shown)]


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
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("_ratio") or name.startswith("top_per_"):
        return f"{value:.3f}"
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{value:.4f}"
    return f"{value:.1f}"
