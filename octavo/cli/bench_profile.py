"""`octavo bench profile`: where a step's time goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from octavo.cli.bench_output import POSITIVE, as_json, int_list, print_report, say
from octavo.cli.options import bench_engine_options, make_engine_options, user_errors


@click.command(short_help="Where a step's time goes, kernel by kernel.")
@click.argument("model")
@as_json
@click.option(
    "--sequences",
    callback=int_list,
    metavar="N,N,...",
    default="1,32,64",
    show_default=True,
    help="Of the decode steps.",
)
@click.option("--context", type=POSITIVE, default=128, show_default=True, help="Tokens of each sequence.")
@click.option(
    "--prefill", type=click.IntRange(min=0), default=1024, show_default=True, help="Tokens of a prompt; 0: none."
)
@click.option(
    "--steps", type=POSITIVE, default=32, show_default=True, help="Steps of each kind; the faster half counts."
)
@bench_engine_options
def profile(
    model: str, as_json: bool, sequences: list[int], context: int, prefill: int, steps: int, **values: Any
) -> None:
    """The anatomy of decode steps and of a prefill: linears by shape, LM head, attention, operations on rows, waiting
    for other threads, sampling, and Python's parts. Times are those of the engine's own thread."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    if max(sequences) > options.max_num_seqs:
        raise click.UsageError(f"--sequences {max(sequences)}: is more than --max-num-seqs {options.max_num_seqs}")
    if options.max_draft_tokens:
        raise click.UsageError("--max-draft-tokens: must be 0, for steps are timed that have as many rows as sequences")
    from octavo.bench.profile import measure_profile
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_profile(llm, sequences, context, prefill, steps, say)
        print_report("profile", rows, as_json, replace(options, threads=llm.loaded.threads))
