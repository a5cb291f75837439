"""What the benchmarks' commands share: options, and how results are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from octavo.config import EngineOptions

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the machine's facts.")
POSITIVE = click.IntRange(min=1)


def int_list(context: click.Context, option: click.Parameter, value: str) -> list[int]:
    """Positive integers with commas between: "1,8,32" -> [1, 8, 32]."""
    try:
        numbers = [int(word) for word in value.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{value!r}: must be positive integers with commas between")
    return numbers


def print_report(
    benchmark: str,
    rows: Sequence[Mapping[str, Any]],
    as_json: bool,
    options: EngineOptions | None = None,
    **more: Any,
) -> None:
    """One JSON object, or the tables for people."""
    from octavo.bench.report import make_report
    from octavo.bench.tables import report_text

    report = make_report(benchmark, rows, options, **more)
    click.echo(json.dumps(report, indent=2) if as_json else report_text(report))


def say(text: str) -> None:
    """What is being measured, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"measuring: {text}", err=True)
