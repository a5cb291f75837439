"""A report as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.bench.profile import GROUPS
from octavo.bench.svg import bars, roofline, stacked_bars

Report = Mapping[str, Any]


def plot(report: Report) -> str:
    """SVG text. Raises ValueError for a report without a picture."""
    kind = report.get("benchmark")
    if kind not in _PLOTS:
        raise ValueError(f"benchmark={kind!r}: has no picture; these have: {', '.join(_PLOTS)}")
    return _PLOTS[kind](report)


def _machine(report: Report) -> str:
    machine = report["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores"


def _profile(report: Report) -> str:
    """A bar a kind of step, a colour a group."""
    rows = report["rows"]
    groups = [group for group in GROUPS if any(row["group"] == group for row in rows)]
    shares = {}
    for step in dict.fromkeys(row["step"] for row in rows):
        mine = [row for row in rows if row["step"] == step]
        whole = sum(row["time_us"] for row in mine)
        name = f"{step}: {whole / 1e3:.3g} ms"
        shares[name] = [sum(row["step_share"] for row in mine if row["group"] == group) for group in groups]
    return stacked_bars("Where a step's time goes", shares, groups)


def _compare(report: Report) -> str:
    """A group of bars a row, a bar an engine that has a figure."""
    groups: dict[str, dict[str, float]] = {}
    for row in report["rows"]:
        if row["tokens_per_s"] is not None:
            groups.setdefault(row["row"], {})[row["engine"]] = row["tokens_per_s"]
    return bars(f"The same work on {_machine(report)}", groups, "tokens/s")


def _kernels(report: Report) -> str:
    """Products over the limits, a series a kernel."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in report["rows"]:
        if row["top_per_s"]:
            speed = row["top_per_s"] * 1e12
            points.setdefault(row["kernel"], []).append((speed / (row["gb_per_s"] * 1e9), speed))
    if not points:
        raise ValueError("the report has no matrix products, which the picture is of")
    limits = report["limits"]
    read = limits["reads"][-1]
    peaks = {f"{each['kind']} products": each["top_per_s"] * 1e12 for each in limits["products"]}
    title = f"{limits['isa']}, {limits['threads']} threads; the slope is reading {read['bytes'] / 2**20:.0f} MiB"
    return roofline(title, read["gb_per_s"] * 1e9, peaks, points)


def _serve(report: Report) -> str:
    groups = {row["load"]: {"output tokens/s": row["output_tokens_per_s"]} for row in report["rows"]}
    return bars("Throughput by load", groups, "output tokens/s")


def _throughput(report: Report) -> str:
    groups = {f"{row['concurrency']} at once": {"output": row["output_tokens_per_s"]} for row in report["rows"]}
    return bars(f"Throughput on {_machine(report)}", groups, "output tokens/s")


def _latency(report: Report) -> str:
    groups = {
        f"prompt of {row['input_len']}": {
            "first token": row["time_to_first_token_s"] * 1e3,
            "each token after it": row["time_per_output_token_s"] * 1e3,
        }
        for row in report["rows"]
    }
    return bars(f"Latency on {_machine(report)}", groups, "ms")


_PLOTS: dict[str, Callable[[Report], str]] = {
    "kernels": _kernels,
    "profile": _profile,
    "compare": _compare,
    "serve": _serve,
    "throughput": _throughput,
    "latency": _latency,
}
