"""`octavo quantize`: a model with 4- or 8-bit weights as a GGUF file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from octavo.cli.options import user_errors

if TYPE_CHECKING:
    from octavo.quantize.model import Quantized


@click.command(short_help="Write a model with 4- or 8-bit weights.")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", "target", type=click.Choice(("w4", "w8")), required=True, help="Bits of most weights.")
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@click.option("--requantize", is_flag=True, help="Take a model that is quantised already.")
@click.option(
    "--no-calibration", is_flag=True, help="With 4 bits, let all weights count alike, not by the size of their inputs."
)
@click.option("--no-check", is_flag=True, help="Do not measure the divergence from the original.")
@click.option("--threads", type=click.IntRange(min=1), help="Default: the cores that this process may use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def quantize(
    model: str,
    out: Path,
    target: Any,
    force: bool,
    requantize: bool,
    no_calibration: bool,
    no_check: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write MODEL (an alias, a GGUF file, a directory of safetensors or a hub repository) as the GGUF file OUT with
    weights in groups of 32, tokenizer and chat template included. With 4 bits the model reads a text first, so that
    the weights of large inputs are kept more exactly.

    Then both models read a short text, and the divergence of their distributions is measured against a bound. The
    exit code is 1 where it is above; the file stays.
    """
    from octavo.quantize.model import Quantization

    with user_errors():
        quantization = Quantization(
            model,
            out,
            target,
            force=force,
            requantize=requantize,
            calibrate=not no_calibration,
            check=not no_check,
            threads=threads,
        )
        with _progress(quantization.new_bytes) as (written, say):
            result = quantization.run(written, say)
    click.echo(json.dumps(report(result), indent=2) if as_json else "\n".join(lines(result)))
    if result.check is not None and not result.check.passed:
        sys.exit(1)


def report(result: Quantized) -> dict[str, Any]:
    """For programs."""
    check = None if result.check is None else asdict(result.check) | {"passed": result.check.passed}
    return asdict(result) | {"path": str(result.path), "check": check}


def lines(result: Quantized) -> list[str]:
    """For people."""

    def size(count: int) -> str:
        return f"{count / 1e6:.1f} MB ({8 * count / result.num_weights:.2f} bits a weight)"

    kinds = ", ".join(f"{number} {kind}" for kind, number in result.kinds.items())
    found = [
        f"wrote {result.path} in {result.seconds:.1f} s",
        f"size: {size(result.old_bytes)} -> {size(result.new_bytes)}; tensors: {kinds}",
    ]
    if (check := result.check) is None:
        return [*found, "not checked"]
    verdict = "within the bound of" if check.passed else "ABOVE the bound of"
    return [
        *found,
        f"check: KL from the original ({check.baseline}) over {check.positions} tokens: mean {check.mean_kl:.5f}, "
        f"median {check.median_kl:.5f}, worst {check.worst_kl:.4f} nats; top-1 agreement {check.top1_agreement:.1%}",
        f"verdict: the mean is {verdict} {check.bound:g} nats",
    ]


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[int], Any], Callable[[str], None]]]:
    """(told the bytes written, told what is being done): a bar, on a terminal only."""
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _: None)
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="B", unit_scale=True, desc="quantize", dynamic_ncols=True) as bar:
        yield bar.update, lambda what: bar.write(what, file=sys.stderr)
