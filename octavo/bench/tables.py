"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.bench.profile import profile_table
from octavo.bench.report import table

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


_TEXTS: dict[str, Callable[[Report], str]] = {"kernels": _kernels, "profile": _profile}
