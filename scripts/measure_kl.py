"""How far an executor's distributions are from full precision, over real text.

    python scripts/measure_kl.py smollm2 tests/data/real_text_smollm2.json
    python scripts/measure_kl.py MODEL IDS --candidate native:bfloat16 --baseline reference

An executor is "reference", "native" (the default format) or "native:DTYPE". Prints the mean
Kullback-Leibler divergence KL(baseline || candidate) in nats, how often both have the same most likely
token, and the worst position.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step
from octavo.executors.interface import Executor
from octavo.executors.reference import ReferenceExecutor
from octavo.models.registry import build_program
from octavo.program.operations import Program

if TYPE_CHECKING:
    from octavo.loaders.checkpoint import Checkpoint

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Per position: KL in nats, and whether the most likely token is the same."""

    kl: Float64Array
    same_top: npt.NDArray[np.bool_]


def measure(
    candidate: Executor,
    baseline: Executor,
    program: Program,
    token_ids: list[int],
    block_size: int = 16,
    chunk: int = 128,
) -> Divergence:
    """Runs token_ids as one context through both executors, in steps of `chunk` tokens.

    Reserves the KV memory of both. Needs memory for a few [chunk, vocab] matrices of logits.
    """
    blocks = -(-len(token_ids) // block_size)
    groups = len(program.kv_groups)
    tables = tuple(np.arange(number * blocks, (number + 1) * blocks, dtype=np.int32)[None] for number in range(groups))
    for executor in (candidate, baseline):
        executor.reserve_kv(groups * blocks, block_size)
    kl, same_top = [], []
    for first in range(0, len(token_ids), chunk):
        step = whole_step(token_ids[first : first + chunk], first, tables)
        expected, actual = baseline.execute(step), candidate.execute(step)
        kl.append(divergence(expected, actual))
        same_top.append(expected.argmax(axis=-1) == actual.argmax(axis=-1))
    return Divergence(np.concatenate(kl), np.concatenate(same_top))


def whole_step(token_ids: list[int], first: int, tables: tuple[npt.NDArray[np.int32], ...]) -> Step:
    """The next tokens of the only sequence, with the logits of each."""
    count = len(token_ids)
    return Step(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(first, first + count, dtype=np.int32),
        query_start_loc=np.array([0, count], np.int32),
        seq_lens=np.array([first + count], np.int32),
        block_tables=tables,
        logits_rows=np.arange(count, dtype=np.int32),
        copies=np.zeros((0, 2), np.int32),
    )


def divergence(expected: npt.NDArray[np.float32], actual: npt.NDArray[np.float32]) -> Float64Array:
    """KL(expected || actual) of each row of logits [n, vocab], in nats.

    Terms in float32, sums in float64: the error is below 1e-6, and 0 for equal rows. Row by row, within the cache.
    """
    return np.array([_row_divergence(*rows) for rows in zip(expected, actual, strict=True)])


def _row_divergence(expected: npt.NDArray[np.float32], actual: npt.NDArray[np.float32]) -> float:
    e, a = expected - expected.max(), actual - actual.max()
    difference = e - a
    np.exp(e, out=e)
    np.exp(a, out=a)
    total, actual_total = e.sum(dtype=np.float64), a.sum(dtype=np.float64)
    difference *= e
    return float(difference.sum(dtype=np.float64) / total - np.log(total) + np.log(actual_total))


def make_executor(kind: str, program: Program, checkpoint: Checkpoint, threads: int) -> Executor:
    """An executor by its word on the command line."""
    name, _, dtype = kind.partition(":")
    if name == "reference" and not dtype:
        return ReferenceExecutor(program, checkpoint, threads)
    if name != "native":
        raise ValueError(f"executor is {kind!r}; known are reference, native and native:DTYPE")
    from octavo.executors.native import NativeExecutor

    return NativeExecutor(program, checkpoint, dtype or "auto", threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="alias, GGUF file or directory")
    parser.add_argument("ids", type=Path, help="JSON list of token ids")
    parser.add_argument("--candidate", default="native")
    parser.add_argument("--baseline", default="native:float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, help="measure the first so many positions only")
    arguments = parser.parse_args()

    from octavo.loaders.checkpoint import open_checkpoint
    from octavo.loaders.hub import resolve_model

    checkpoint = open_checkpoint(resolve_model(arguments.model))
    program = build_program(checkpoint.config)
    candidate, baseline = (
        make_executor(kind, program, checkpoint, arguments.threads)
        for kind in (arguments.candidate, arguments.baseline)
    )
    token_ids = json.loads(arguments.ids.read_text())[: arguments.limit]
    result = measure(candidate, baseline, program, token_ids)
    worst = int(result.kl.argmax())
    print(f"positions {len(result.kl)}")
    print(f"mean KL   {result.kl.mean():.6f} nats (median {np.median(result.kl):.6f})")
    print(f"top-1     {100 * result.same_top.mean():.2f} %")
    print(f"worst KL  {result.kl[worst]:.4f} nats at position {worst}")


if __name__ == "__main__":
    main()
