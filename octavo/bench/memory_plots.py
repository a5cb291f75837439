"""The plots of docs/memory.md, from the rows of `octavo bench memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.bench.svg import bars, lines, stacked_bars

Rows = Sequence[Mapping[str, Any]]

PARTS = ("tokens", "reserved", "internal", "external")
NAMED = {"sharegpt": "ShareGPT", "alpaca": "Alpaca"}


def write_plots(report: Mapping[str, Rows], directory: Path) -> list[Path]:
    """Writes what the report has parts for; the files written."""
    plots = simulation_plots(report.get("simulation", ())) | engine_plots(report.get("engine", ()))
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in plots.items():
        path = directory / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def simulation_plots(rows: Rows) -> dict[str, str]:
    """What memory holds by allocator, a plot a trace; and what holds tokens by block size."""
    plots = {}
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    for trace in traces:
        bars = {
            f"paged, blocks of {row['block_size']}" if row["block_size"] else row["allocator"]: [
                row[f"{part}_share"] for part in PARTS
            ]
            for row in rows
            if row["trace"] == trace and row["block_size"] in (0, 16, 64)
        }
        legend = ("token states", "reserved for later", "internal waste", "external waste")
        plots[f"{trace}-memory"] = stacked_bars(f"KV memory under load, {NAMED[trace]} lengths", bars, legend)
    if traces:
        sizes = sorted({row["block_size"] for row in rows if row["block_size"]})
        series = {NAMED[trace]: [_paged(rows, trace, size)["tokens_share"] for size in sizes] for trace in traces}
        plots["block-size"] = lines(
            "Share of KV memory that holds token states", [str(size) for size in sizes], series, "tokens in a block"
        )
    return plots


def engine_plots(rows: Rows) -> dict[str, str]:
    """Occupancy and speed by policy, of the trace through the engine."""
    if not rows:
        return {}
    shares = {row["policy"]: [row["tokens_share"], 1 - row["tokens_share"]] for row in rows}
    figures = {
        "output tokens a second": {row["policy"]: row["output_tokens_per_s"] for row in rows},
        "requests at once": {row["policy"]: row["mean_batch"] for row in rows},
    }
    return {
        "engine-memory": stacked_bars("KV memory while requests wait, in the engine", shares, ("token states", "rest")),
        "engine-speed": bars("The trace through the engine", figures, "by policy"),
    }


def _paged(rows: Rows, trace: str, block_size: int) -> Mapping[str, Any]:
    return next(row for row in rows if row["trace"] == trace and row["block_size"] == block_size)
