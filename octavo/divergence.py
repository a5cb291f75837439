"""How far an executor's distributions are from another's, over a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step
from octavo.executors.interface import Executor
from octavo.program.operations import Program

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
