"""`octavo bench kernels`: every kernel over the machine's own limits."""

from __future__ import annotations

from typing import Any, get_args

import click

from octavo.cli.bench_output import POSITIVE, as_json, int_list, print_report, say
from octavo.cli.options import user_errors
from octavo.config import ActivationDType, InstructionSet

GROUPS = ("linear", "head", "attention", "paging", "rows", "sampling")


@click.command(short_help="Each kernel's speed over the machine's own limits.")
@click.argument("model", default="smollm2")
@as_json
@click.option("--isa", type=click.Choice(get_args(InstructionSet)), help="Default: the best that the machine has.")
@click.option("--threads", type=POSITIVE, help="Default: the cores that this process may use.")
@click.option(
    "--rows",
    callback=int_list,
    metavar="N,N,...",
    default="1,8,32,64,256,1024",
    show_default=True,
    help="Rows of linears and row operations; heads and sampling take those up to 64.",
)
@click.option(
    "--formats",
    metavar="F,F,...",
    default="w4,w4symmetric,w6g16,w8,bf16,f32",
    show_default=True,
    help="Of the weights; w6, w6affine and w6affine_g16 are there too.",
)
@click.option("--only", type=click.Choice(GROUPS), multiple=True, help="May be repeated. Default: all of them.")
@click.option("--by-shape", is_flag=True, help="Linears by their shape, not all layers at once.")
@click.option(
    "--activation-dtype",
    type=click.Choice(get_args(ActivationDType)),
    default="auto",
    show_default=True,
    help="What weights in 4 to 8 bits multiply.",
)
@click.option("--kv-dtype", default="bfloat16", show_default=True, help="Of K and V: as the native library names it.")
@click.option("--block-size", type=click.IntRange(8, 256), default=64, show_default=True, help="Of attention.")
@click.option("--repeat", type=POSITIVE, default=10, show_default=True, help="Runs; the fastest counts.")
def kernels(
    model: str,
    as_json: bool,
    isa: str | None,
    threads: int | None,
    rows: list[int],
    formats: str,
    only: tuple[str, ...],
    repeat: int,
    **values: Any,
) -> None:
    """A roofline table: linears, LM head, attention, operations on rows and sampling in MODEL's shapes, with random
    weights. Bytes a second are set against a read loop over as much memory, operations against a loop of the same kind
    of products; both are measured in the same run, on the same threads."""
    from octavo.bench.kernels import KernelOptions, measure_kernels
    from octavo.bench.model_shape import model_shape
    from octavo.loaders.checkpoint import open_checkpoint
    from octavo.loaders.hub import resolve_model
    from octavo.memory import core_facts
    from octavo.models.registry import build_program
    from octavo.native_library import native_library

    with user_errors():
        config = open_checkpoint(resolve_model(model)).config
        shape = model_shape(build_program(config, 64))
        options = KernelOptions(rows=rows, formats=formats.split(","), groups=only or GROUPS, repeats=repeat, **values)
        measured = measure_kernels(
            shape, isa or native_library().detect_isa(), threads or core_facts().usable, options, say
        )
    print_report("kernels", measured.pop("rows"), as_json, model=model, **measured)
