"""A measurement as one object for machines, and its rows as a table for people."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from octavo.bench.machine import machine_facts
from octavo.config import EngineOptions


def make_report(
    benchmark: str, rows: Sequence[Mapping[str, Any]], options: EngineOptions | None = None, **more: Any
) -> dict[str, Any]:
    """The shape that all benchmarks share; docs/benchmarks.md describes it. `more` are parts of one benchmark's own."""
    return {
        "benchmark": benchmark,
        "command": _command(sys.argv),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "options": None if options is None else asdict(options),
        "rows": list(rows),
        **more,
    }


def _command(arguments: Sequence[str]) -> str:
    """A command line that may be published: by the program's name, and without a server's key."""
    program = Path(arguments[0]).name
    shown = ["octavo" if program == "__main__.py" else program]
    for argument in arguments[1:]:
        hidden = shown[-1] == "--key"
        shown.append("..." if hidden else "--key=..." if argument.startswith("--key=") else argument)
    return shlex.join(shown)


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
    if name.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB"
    if not isinstance(value, float):
        return str(value)
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("_ratio") or name.startswith("top_per_"):
        return f"{value:.3f}"
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{value:.4f}"
    return f"{value:.1f}"
