"""`octavo bench`: what a model, its kernels and its server do on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from octavo.cli.bench_beams import beams
from octavo.cli.bench_compare import compare
from octavo.cli.bench_kernels import kernels
from octavo.cli.bench_memory import memory
from octavo.cli.bench_output import POSITIVE, as_json, int_list, print_report, say
from octavo.cli.bench_plot import plot
from octavo.cli.bench_profile import profile
from octavo.cli.bench_serve import serve
from octavo.cli.options import ENGINE_NAMES, bench_engine_options, engine_options, make_engine_options, user_errors
from octavo.cli.serve import can_serve
from octavo.config import EngineOptions


@click.group(short_help="Measure speed, memory and kernels; compare with other engines.")
def bench() -> None:
    """Measure a model on this machine. Figures depend on the machine and its load: compare runs made side by
    side. docs/benchmarks.md says how each figure is made and what the JSON holds."""


for command in (beams, compare, kernels, memory, plot, profile, serve):
    bench.add_command(command)


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
@bench_engine_options
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
        rows = measure_throughput(llm, concurrency, input_len, output_len, repeat, say)
        print_report("throughput", rows, as_json, replace(options, threads=llm.loaded.threads))


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
@bench_engine_options
def latency(model: str, as_json: bool, input_len: list[int], output_len: int, repeat: int, **values: Any) -> None:
    """One request at a time: random prompt, greedy, end of sequence ignored, prefix cache off."""
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    from octavo.bench.latency import measure_latency
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), LLM.from_loaded(load(options)) as llm:
        rows = measure_latency(llm, input_len, output_len, repeat, say)
        print_report("latency", rows, as_json, replace(options, threads=llm.loaded.threads))


@bench.command(short_help="Process start to first text, and memory.")
@click.argument("model")
@as_json
@click.option("--repeat", type=POSITIVE, default=5, show_default=True, help="Fresh processes; medians count.")
@engine_options
def startup(model: str, as_json: bool, repeat: int, **values: Any) -> None:
    """Fresh processes of `octavo run`: from their start to the first text of the answer, and their peak memory. One
    more answers 32 prompts and tells what is resident beyond its weights and KV, and so does a server under load."""
    options = make_engine_options(model, values)
    from octavo.bench.resident import measure_resident
    from octavo.bench.resident_server import measure_served
    from octavo.bench.startup import measure_startup

    try:
        row = measure_startup(model, engine_arguments(options), repeat, say)
        say("resident memory")
        row |= measure_resident(options)
        if can_serve():
            say("resident memory of a server")
            row |= measure_served(model, engine_arguments(options), row["weight_bytes"], row["block_bytes"])
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None
    print_report("startup", [row], as_json, options)


def engine_arguments(options: EngineOptions) -> list[str]:
    """The command line that says the same as `options`, the model left out."""
    arguments = [] if options.enable_prefix_caching else ["--no-prefix-caching"]
    for name in ENGINE_NAMES:
        value = getattr(options, name)
        if name != "enable_prefix_caching" and value is not None:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments
