"""`octavo bench`: throughput, latency, startup and memory of a model on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from octavo.cli.bench_memory import memory
from octavo.cli.options import engine_options, make_engine_options, user_errors
from octavo.config import EngineOptions


def int_list(context: click.Context, option: click.Parameter, value: str) -> list[int]:
    """Positive integers with commas between: "1,8,32" -> [1, 8, 32]."""
    try:
        numbers = [int(word) for word in value.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{value!r}: must be positive integers with commas between")
    return numbers


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the machine's facts.")
POSITIVE = click.IntRange(min=1)


@click.group(short_help="Measure throughput, latency, startup or memory.")
def bench() -> None:
    """Measure a model on this machine. Figures depend on the machine and its load: compare runs made side by
    side."""


bench.add_command(memory)


@bench.command(short_help="Tokens a second by concurrency.")
@click.argument("model")
@as_json
@click.option(
    "--concurrency",
    callback=int_list,
    metavar="N,N,...",
    default="1,8,32,64",
    show_default=True,
    help="Requests at once.",
)
@click.option("--input-len", type=POSITIVE, default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--output-len", type=POSITIVE, default=128, show_default=True, help="Tokens of each answer.")
@click.option("--repeat", type=POSITIVE, default=1, show_default=True, help="Runs; the median one counts.")
@engine_options
def throughput(
    model: str,
    as_json: bool,
    concurrency: list[int],
    input_len: int,
    output_len: int,
    repeat: int,
    **values: Any,
) -> None:
    """Random prompts, greedy, end of sequence ignored, prefix cache off; wall clock with prefill."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    if max(concurrency) > options.max_num_seqs:
        raise click.UsageError(f"--concurrency {max(concurrency)}: is more than --max-num-seqs {options.max_num_seqs}")
    from octavo.bench.throughput import measure_throughput
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_throughput(llm, concurrency, input_len, output_len, repeat, _say)
        _report("throughput", options, rows, as_json, llm.loaded.threads)


@bench.command(short_help="First token, time per token, prefill speed.")
@click.argument("model")
@as_json
@click.option(
    "--input-len",
    callback=int_list,
    metavar="N,N,...",
    default="128,1024",
    show_default=True,
    help="Tokens of the prompt.",
)
@click.option("--output-len", type=POSITIVE, default=64, show_default=True, help="Tokens of the answer.")
@click.option("--repeat", type=POSITIVE, default=3, show_default=True, help="Runs; medians count.")
@engine_options
def latency(model: str, as_json: bool, input_len: list[int], output_len: int, repeat: int, **values: Any) -> None:
    """One request at a time: random prompt, greedy, end of sequence ignored, prefix cache off."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    from octavo.bench.latency import measure_latency
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_latency(llm, input_len, output_len, repeat, _say)
        _report("latency", options, rows, as_json, llm.loaded.threads)


@bench.command(short_help="Process start to first text, and memory.")
@click.argument("model")
@as_json
@click.option("--repeat", type=POSITIVE, default=5, show_default=True, help="Fresh processes; medians count.")
@engine_options
def startup(model: str, as_json: bool, repeat: int, **values: Any) -> None:
    """Fresh processes of `octavo run`: from their start to the first text of the answer, and their peak
    memory."""
    options = make_engine_options(model, values)
    from octavo.bench.startup import measure_startup

    try:
        row = measure_startup(model, engine_arguments(options), repeat, _say)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None
    _report("startup", options, [row], as_json, options.threads)


def engine_arguments(options: EngineOptions) -> list[str]:
    """The command line that says the same as `options`, the model left out."""
    arguments = []
    for flag, value in (
        ("--dtype", options.dtype),
        ("--block-size", options.block_size),
        ("--kv-cache-dtype", options.kv_cache_dtype),
        ("--kv-cache-memory", options.kv_cache_memory),
        ("--max-model-len", options.max_model_len),
        ("--max-num-seqs", options.max_num_seqs),
        ("--max-num-batched-tokens", options.max_num_batched_tokens),
        ("--threads", options.threads),
        ("--executor", options.executor),
        ("--instruction-set", options.instruction_set),
    ):
        if value is not None:
            arguments += [flag, str(value)]
    return arguments if options.enable_prefix_caching else [*arguments, "--no-prefix-caching"]


def _report(
    kind: str, options: EngineOptions, rows: Sequence[dict[str, Any]], as_json: bool, threads: int | None
) -> None:
    if not as_json:
        from octavo.bench.report import table

        click.echo(table(rows))
        return
    from octavo.bench.machine import machine_facts

    facts = {name: getattr(options, name) for name in EngineOptions.__dataclass_fields__}
    report = {
        "benchmark": kind,
        "rows": rows,
        "options": {**facts, "threads": threads},
        "machine": machine_facts(),
    }
    click.echo(json.dumps(report, indent=2))


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"measuring: {text}", err=True)
