"""`octavo bench beams`: what beam search costs beside sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from octavo.cli.bench_output import POSITIVE, as_json, print_report, say
from octavo.cli.options import bench_engine_options, make_engine_options, user_errors


@click.command(short_help="Beam search beside sampling.")
@click.argument("model", default="smollm2")
@as_json
@click.option("--width", type=POSITIVE, default=4, show_default=True, help="Beams, and samples of one prompt.")
@click.option("--input-len", type=POSITIVE, default=256, show_default=True, help="Tokens of the prompt.")
@click.option("--output-len", type=POSITIVE, default=256, show_default=True, help="Tokens of each answer.")
@click.option("--repeat", type=POSITIVE, default=3, show_default=True, help="Rounds; medians count.")
@bench_engine_options
def beams(model: str, as_json: bool, width: int, input_len: int, output_len: int, repeat: int, **values: Any) -> None:
    """One request at a time: random prompt, end of sequence ignored, prefix cache off. Sampling of as many sequences,
    beam search, and beam search with a penalty take turns."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    from octavo.bench.beams import measure_beams
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_beams(llm, width, input_len, output_len, repeat, say)
        print_report("beams", rows, as_json, replace(options, threads=llm.loaded.threads))
