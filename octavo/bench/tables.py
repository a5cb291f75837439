"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.bench.compare import compare_table
from octavo.bench.profile import profile_table
from octavo.bench.report import table
from octavo.bench.serve_load import serve_table

Report = Mapping[str, Any]


def report_text(report: Report) -> str:
    """The tables of one benchmark's report."""
    return _TEXTS.get(report["benchmark"], _plain)(report)


def _plain(report: Report) -> str:
    return table(report["rows"])


def _kernels(report: Report) -> str:
    """The limits, the roofline table, and paging."""
    limits = report["limits"]
    reads = ", ".join(f"{each['bytes'] / 2**20:.0f} MiB {each['gb_per_s']:.0f}" for each in limits["reads"])
    peaks = ", ".join(f"{each['kind']} {each['top_per_s']:.2f}" for each in limits["products"])
    lines = [
        f"{limits['isa']}, {limits['threads']} threads. Limits of this machine, measured now:",
        f"  reading, GB/s: {reads}",
        f"  products, TOP/s: {peaks}",
    ]
    if report["rows"]:
        lines += ["", table(report["rows"])]
    if report["paging"]:
        lines += ["", "attention decode, paged against contiguous memory", table(report["paging"])]
    return "\n".join(lines)


def _profile(report: Report) -> str:
    return table(profile_table(report["rows"]))


def _compare(report: Report) -> str:
    """The table, and which engines are not in it."""
    lines = [table(compare_table(report["rows"])), ""]
    lines += [f"{each['name']}: {each['version']}" for each in report["engines"]]
    lines += [
        f"{name}: absent: {why}; docs/benchmarks.md says how to install it" for name, why in report["absent"].items()
    ]
    lines += [f"{name}: failed: {why}" for name, why in report["failed"].items()]
    return "\n".join(lines)


def _serve(report: Report) -> str:
    """The rows, and what went wrong."""
    lines = [f"{report['url']}, model {report['model']}", table(serve_table(report["rows"]))]
    kinds = [(row["load"], kind, count) for row in report["rows"] for kind, count in row["error_kinds"].items()]
    return "\n".join([*lines, *(f"{load}: {count} x {kind}" for load, kind, count in kinds)])


_TEXTS: dict[str, Callable[[Report], str]] = {
    "kernels": _kernels,
    "profile": _profile,
    "compare": _compare,
    "serve": _serve,
}
