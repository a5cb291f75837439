"""`octavo bench beams`: what beam search costs beside sampling."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from octavo.cli.options import engine_options, make_engine_options, user_errors

POSITIVE = click.IntRange(min=1)


@click.command(short_help="Beam search beside sampling.")
@click.argument("model", default="smollm2")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the machine's facts.")
@click.option("--width", type=POSITIVE, default=4, show_default=True, help="Beams, and samples of one prompt.")
@click.option("--input-len", type=POSITIVE, default=256, show_default=True, help="Tokens of the prompt.")
@click.option("--output-len", type=POSITIVE, default=256, show_default=True, help="Tokens of each answer.")
@click.option("--repeat", type=POSITIVE, default=3, show_default=True, help="Rounds; medians count.")
@engine_options
def beams(model: str, as_json: bool, width: int, input_len: int, output_len: int, repeat: int, **values: Any) -> None:
    """One request at a time: random prompt, end of sequence ignored, prefix cache off. Sampling of as many sequences,
    beam search, and beam search with a penalty take turns."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    from octavo.bench.beams import measure_beams
    from octavo.bench.machine import machine_facts
    from octavo.bench.report import table
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_beams(
            llm, width, input_len, output_len, repeat, lambda text: click.echo(f"measuring: {text}", err=True)
        )
        threads = llm.loaded.threads
    if not as_json:
        click.echo(table(rows))
        return
    facts = {name: getattr(options, name) for name in type(options).__dataclass_fields__}
    report = {"benchmark": "beams", "rows": rows, "options": facts | {"threads": threads}, "machine": machine_facts()}
    click.echo(json.dumps(report, indent=2))
