"""`octavo bench memory`: what paging and sharing save against contiguous memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from octavo.cli.options import bench_engine_options, make_engine_options, user_errors
from octavo.config import EngineOptions

if TYPE_CHECKING:
    from octavo.llm import LLM

PARTS = ("simulation", "engine", "sharing", "system-prompt")

Say = Callable[[str], None]


@click.command(short_help="Paged against contiguous memory, and sharing.")
@click.argument("model", default="smollm2")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the machine's facts.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="May be repeated. Default: all of them.")
@click.option("--requests", type=click.IntRange(min=1), default=100, show_default=True, help="Of part engine.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0.01, max=1),
    default=0.5,
    show_default=True,
    help="Of part engine: lengths and memory times this, so that it ends soon.",
)
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Write SVG plots to this directory.")
@bench_engine_options
def memory(
    model: str,
    as_json: bool,
    parts: tuple[str, ...],
    requests: int,
    scale: float,
    plots: Path | None,
    **values: Any,
) -> None:
    """simulation: what KV memory holds under each allocator, on lengths like ShareGPT's and Alpaca's; no model.

    engine: the same policies under the real engine and MODEL, in a fixed memory. Blocks are scaled too, and are
    never smaller than 8 tokens.

    sharing: blocks that parallel sampling and beam search share.

    system-prompt: what a common system prompt of 64 requests saves, in blocks and in time.
    """
    options = make_engine_options(model, values)
    report: dict[str, Any] = {}
    with user_errors():
        for part in parts or PARTS:
            report |= _MEASURES[part](options, requests, scale)
    if plots is not None:
        from octavo.bench.memory_plots import write_plots

        for path in write_plots(report, plots):
            click.echo(f"wrote {path}", err=True)
    _print(report, options, as_json)


def _simulation(options: EngineOptions, requests: int, scale: float) -> dict[str, Any]:
    from octavo.bench.memory_simulation import measure_simulation

    _say("simulation")
    return {"simulation": measure_simulation()}


def _engine(options: EngineOptions, requests: int, scale: float) -> dict[str, Any]:
    from octavo.bench.memory_engine import measure_engine

    with _load(replace(options, enable_prefix_caching=False)) as llm:
        block_size = max(8, round(int(llm.loaded.options.block_size) * scale / 8) * 8)
        return {"engine": measure_engine(llm.loaded, requests, scale, block_size, say=_say)}


def _sharing(options: EngineOptions, requests: int, scale: float) -> dict[str, Any]:
    from octavo.bench.memory_sharing import measure_beam_sharing, measure_sharing

    _say("parallel sampling")
    sampling = measure_sharing()
    with _load(replace(options, block_size=16)) as llm:
        beams = measure_beam_sharing(llm, say=_say)
    return {"sharing": sampling, "beams": beams}


def _system_prompt(options: EngineOptions, requests: int, scale: float) -> dict[str, Any]:
    from octavo.bench.memory_sharing import measure_system_prompt

    rows = measure_system_prompt(lambda caching: _load(replace(options, enable_prefix_caching=caching)), say=_say)
    return {"system prompt": rows}


_MEASURES: dict[str, Callable[[EngineOptions, int, float], dict[str, Any]]] = {
    "simulation": _simulation,
    "engine": _engine,
    "sharing": _sharing,
    "system-prompt": _system_prompt,
}


def _load(options: EngineOptions) -> LLM:
    from octavo.llm import LLM
    from octavo.loading import load

    return LLM.from_loaded(load(options))


def _print(parts: dict[str, Any], options: EngineOptions, as_json: bool) -> None:
    if as_json:
        from octavo.bench.report import make_report

        click.echo(json.dumps(make_report("memory", (), options, **parts), indent=2))
        return
    from octavo.bench.report import table

    for name, rows in parts.items():
        click.echo(f"{name}\n{table(rows)}\n")


def _say(text: str) -> None:
    click.echo(f"measuring: {text}", err=True)
