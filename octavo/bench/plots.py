"""A report as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from octavo.bench.profile import GROUPS
from octavo.bench.roofline import Mark, Series, roofline
from octavo.bench.svg import bars, figure, stacked_bars

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
    shares, totals = {}, []
    for step in dict.fromkeys(row["step"] for row in rows):
        mine = [row for row in rows if row["step"] == step]
        shares[step] = [sum(row["step_share"] for row in mine if row["group"] == group) for group in groups]
        totals.append(f"{figure(sum(row['time_us'] for row in mine) / 1e3)} ms")
    names = ["row operations" if group == "rows" else group for group in groups]
    return stacked_bars(f"Where a step's time goes on {_machine(report)}", shares, names, totals)


def _compare(report: Report) -> str:
    """A group of bars a row, a bar an engine that has a figure."""
    groups: dict[str, dict[str, float]] = {}
    for row in report["rows"]:
        if row["tokens_per_s"] is not None:
            groups.setdefault(row["row"], {})[row["engine"]] = row["tokens_per_s"]
    return bars(f"The same work on {_machine(report)}", groups, "tokens/s")


def _kernels(report: Report) -> str:
    """Matrix products under the limits, a mark a row: those of linears and heads by format, of attention by kind."""
    marks: dict[str, list[Mark]] = {}
    for row in report["rows"]:
        if row["top_per_s"]:
            label = f"{row['rows']}" + (f" at {row['context']}" if row["context"] else "")
            mark = Mark(row["top_per_s"] / row["gb_per_s"] * 1e3, row["top_per_s"], label)
            marks.setdefault(row["kernel"], []).append(mark)
    if not marks:
        raise ValueError("the report has no matrix products, which the picture is of")
    limits = report["limits"]
    model, cpu = PurePath(report["model"]).name, report["machine"]["cpu"]
    title = f"Kernels of {model} on {cpu}, {limits['threads']} threads, {limits['isa']}"
    slopes = {"memory": limits["reads"][-1]["gb_per_s"], "caches": limits["reads"][0]["gb_per_s"]}
    peaks = {each["kind"]: each["top_per_s"] for each in limits["products"]}
    series = [Series(*_kind(name), each) for name, each in marks.items()]
    note = "Beside the marks: rows at once, of attention at a context. Lines: the limits, measured in the same run."
    return roofline(title, slopes, peaks, series, note)


def _kind(kernel: str) -> tuple[str, str]:
    """Kind and format of a kernel by its name: "linear w4 576x192" is a linear in w4, attention has no format."""
    words = kernel.split()
    return (words[0], words[1]) if words[0] in ("linear", "head") else (kernel, "")


def _serve(report: Report) -> str:
    """A group of bars a figure, a bar a load."""
    groups: dict[str, dict[str, float]] = {}
    for row in report["rows"]:
        groups.setdefault("output tokens/s", {})[row["load"]] = row["output_tokens_per_s"]
        for key, name in (("ttft_ms", "first piece"), ("tpot_ms", "each token after it")):
            for part, word in (("p50", "median"), ("p99", "p99")):
                if part in row[key]:
                    groups.setdefault(f"{name}, {word}, ms", {})[row["load"]] = row[key][part]
    return bars(f"{report['model']} served", groups, "by load")


def _throughput(report: Report) -> str:
    """A group of bars a figure, a bar a concurrency."""
    groups: dict[str, dict[str, float]] = {}
    for row in report["rows"]:
        name = f"{row['concurrency']} at once"
        groups.setdefault("output tokens/s", {})[name] = row["output_tokens_per_s"]
        groups.setdefault("first token, ms", {})[name] = row["time_to_first_token_s"] * 1e3
    return bars(f"Throughput on {_machine(report)}", groups, "by concurrency")


def _latency(report: Report) -> str:
    """A group of bars a figure, a bar a prompt."""
    names = {"time_to_first_token_s": "first token, ms", "time_per_output_token_s": "each token after it, ms"}
    groups = {
        name: {f"{row['input_len']} tokens": row[key] * 1e3 for row in report["rows"]} for key, name in names.items()
    }
    return bars(f"Latency on {_machine(report)}", groups, "by prompt")


_PLOTS: dict[str, Callable[[Report], str]] = {
    "kernels": _kernels,
    "profile": _profile,
    "compare": _compare,
    "serve": _serve,
    "throughput": _throughput,
    "latency": _latency,
}
