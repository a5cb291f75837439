"""`octavo bench compare`: Octavo beside the other engines that are installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from octavo.cli.bench_output import POSITIVE, as_json, int_list, print_report, say
from octavo.cli.options import bench_engine_options, make_engine_options, user_errors

Command = TypeVar("Command", bound=Callable[..., Any])
EXISTING = click.Path(exists=True, path_type=Path)


def _interpreter_options(kind: str, library: str, models: str) -> Callable[[Command], Command]:
    """Two options of an engine that is a Python library."""

    def add(command: Command) -> Command:
        command = click.option(
            f"--{kind}-model", f"{kind}_models", type=EXISTING, multiple=True, help=f"{models}; may be repeated."
        )(command)
        return click.option(
            f"--{kind}-python",
            envvar=f"OCTAVO_{kind.upper()}_PYTHON",
            show_envvar=True,
            metavar="PROGRAM",
            help=f"An interpreter that has {library}.",
        )(command)

    return add


@click.command(short_help="Beside llama.cpp, OpenVINO and transformers, in turns.")
@click.argument("model")
@as_json
@click.option("--rounds", type=POSITIVE, default=5, show_default=True, help="All engines in each; medians count.")
@click.option(
    "--concurrency",
    callback=int_list,
    metavar="N,N,...",
    default="1,8,32,64",
    show_default=True,
    help="Requests at once.",
)
@click.option("--input-len", type=POSITIVE, default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--output-len", type=click.IntRange(min=2), default=128, show_default=True, help="Tokens of each answer.")
@click.option(
    "--prefill",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="Tokens of one prompt; 0: no such row.",
)
@click.option(
    "--context", type=click.IntRange(min=0), default=8192, show_default=True, help="Of one long stream; 0: no such row."
)
@click.option(
    "--llama-cpp",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="OCTAVO_LLAMA_CPP",
    show_envvar=True,
    help="Directory of llama-batched-bench. Default: the PATH.",
)
@click.option(
    "--llama-model",
    "llama_models",
    type=EXISTING,
    multiple=True,
    help="A GGUF file for it; may be repeated. Default: MODEL's own.",
)
@_interpreter_options("openvino", "openvino_genai", "A directory that optimum-cli exported")
@_interpreter_options("transformers", "torch and transformers", "A directory that transformers loads")
@bench_engine_options
def compare(
    model: str,
    as_json: bool,
    rounds: int,
    concurrency: list[int],
    input_len: int,
    output_len: int,
    prefill: int,
    context: int,
    llama_cpp: Path | None,
    llama_models: tuple[Path, ...],
    openvino_python: str | None,
    openvino_models: tuple[Path, ...],
    transformers_python: str | None,
    transformers_models: tuple[Path, ...],
    **values: Any,
) -> None:
    """The same work for every engine, one after the other in each round: random prompts, greedy, no prefix cache, as
    many threads for each. What is not installed is left out and named.

    output: output tokens over the whole time, with prefill; decode: one stream's tokens after the first; prefill:
    prompt tokens over the time to the first token. With --instruction-set give a llama.cpp that was built for the same
    set.
    """
    options = replace(make_engine_options(model, values), enable_prefix_caching=False)
    if max(concurrency) > options.max_num_seqs:
        raise click.UsageError(f"--concurrency {max(concurrency)}: is more than --max-num-seqs {options.max_num_seqs}")
    from octavo.bench.compare import make_rows, measure_compare
    from octavo.bench.peers import make_peers
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), ExitStack() as stack:
        rows = make_rows(concurrency, input_len, output_len, prefill, context)
        llm = stack.enter_context(LLM.from_loaded(load(options)))
        path = llm.loaded.path
        say("starting the other engines")
        peers, absent = make_peers(
            llm.loaded.threads,
            llama_models or ((path,) if path.suffix == ".gguf" else ()),
            llama_cpp,
            [
                ("openvino", openvino_python, openvino_models),
                ("transformers", transformers_python, transformers_models),
            ],
        )
        for peer in peers:
            stack.callback(peer.close)
        measured, failed = measure_compare(llm, peers, rows, rounds, say)
        engines = [{"name": peer.name, "version": peer.version} for peer in peers]
        used = replace(options, threads=llm.loaded.threads)
        print_report("compare", measured, as_json, used, rounds=rounds, engines=engines, absent=absent, failed=failed)
