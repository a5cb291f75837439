"""`octavo tune`: the block size for a model on this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from octavo.cli.options import bench_engine_options, make_engine_options, user_errors


@click.command(short_help="Find the block size for a model on this machine.")
@click.argument("model", default="smollm2")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the machine's facts.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Steps of each of three rounds; the fastest counts.",
)
@click.option("--no-store", is_flag=True, help="Do not keep the result for --block-size auto.")
@bench_engine_options
def tune(model: str, as_json: bool, repeat: int, no_store: bool, **values: Any) -> None:
    """Measures blocks of 8 to 256 tokens: seconds of attention in a step (decode and prefill), memory that tails
    waste, tokens that a prefix hit copies or loses. The recommendation is kept for --block-size auto.

    Times depend on what else the machine does: tune it while it is idle.
    """
    options = make_engine_options(model, values | {"block_size": 64, "kv_cache_memory": "64MiB"})
    from octavo.bench.report import table
    from octavo.bench.tune import advise_short, measure_block_sizes, recommend, report
    from octavo.loading import load
    from octavo.tuning import store_tuning

    with user_errors():
        loaded = load(options)
        try:
            rows = measure_block_sizes(
                loaded, repeats=repeat, say=lambda text: click.echo(f"measuring: {text}", err=True)
            )
            tuning = recommend(rows)
            path = None if no_store else store_tuning(loaded.fingerprint, loaded.threads, tuning)
            whole = report(loaded, rows, tuning)
        finally:
            loaded.close()
    if as_json:
        click.echo(json.dumps(whole, indent=2))
        return
    click.echo(table(rows))
    click.echo(f"\nblock size {tuning.block_size}: {tuning.reason}.")
    click.echo(f"{advise_short(rows, tuning.block_size)}.")
    if path is not None:
        click.echo(f"kept for --block-size auto in {path}")
