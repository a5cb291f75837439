"""`octavo bench plot`: pictures and tables of saved results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from octavo.cli.options import user_errors


@click.command(short_help="A picture and a table of each saved result.")
@click.argument("files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the pictures go. Default: beside the files.",
)
def plot(files: tuple[Path, ...], directory: Path | None) -> None:
    """FILES hold what the other commands print with --json. Each becomes NAME.svg; its table is printed."""
    from octavo.bench.plots import plot as draw
    from octavo.bench.tables import report_text

    with user_errors():
        for file in files:
            report = _read(file)
            target = (directory or file.parent) / f"{file.stem}.svg"
            text = draw(report)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            click.echo(f"{report['command']}, {report['measured_at']}\n{report_text(report)}\nwrote {target}\n")


def _read(file: Path) -> dict[str, Any]:
    """A report. Raises ValueError for what is none."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: is no JSON: {error}") from None
    if not isinstance(report, dict) or not {"benchmark", "rows", "command", "measured_at", "machine"} <= report.keys():
        raise ValueError(f"{file}: is no result of octavo bench")
    return report
