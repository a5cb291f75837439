"""The check of a quantised model: its distributions against the original's, over a text."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.config import format_bytes
from octavo.divergence import measure
from octavo.loading import unsupported_reasons
from octavo.memory import memory_facts
from octavo.models.registry import build_program
from octavo.quantize.sample import SAMPLE

if TYPE_CHECKING:
    from octavo.executors.interface import Executor
    from octavo.loaders.checkpoint import Checkpoint
    from octavo.program.operations import Program
    from octavo.quantize.tensors import Format
    from octavo.text.tokenizer import Tokenizer

BOUNDS: Final[dict[Format, float]] = {"w4": 0.25, "w8": 0.01}
"""Highest mean divergence of a good conversion, in nats: what models of 135 million weights need; larger ones stay
far below."""
MAX_POSITIONS: Final = 512
_CHUNK: Final = 64
_BLOCK_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Check:
    """KL(original || quantised) over the positions of the sample text."""

    positions: int
    mean_kl: float
    """nats"""
    median_kl: float
    worst_kl: float
    top1_agreement: float
    """share of positions where both have the same most likely token"""
    bound: float
    """for mean_kl"""
    baseline: str
    """how the original was computed"""

    @property
    def passed(self) -> bool:
        return self.mean_kl <= self.bound


def choose_baseline(checkpoint: Checkpoint, new_bytes: int) -> str:
    """The dtype in which the original is computed: float32 where both models then fit into the free memory, else
    bfloat16.

    new_bytes: of the quantised model. Raises ValueError, with both numbers, where neither fits.
    """
    values = sum(prod(source.shape) for source in checkpoint.tensors.values())
    free = memory_facts().free
    # Packed, 4-bit blocks grow by up to an eighth; the logits of a chunk and the KV are small beside the rest.
    fixed = new_bytes * 9 // 8 + 2 * _CHUNK * checkpoint.config.vocab_size * 4
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        if free is None or fixed + values * size <= free:
            return dtype
    raise ValueError(
        f"the check needs about {format_bytes(fixed + values * 2)} of memory, {format_bytes(free or 0)} are free; "
        "leave it out with --no-check"
    )


def check_divergence(
    original: Checkpoint,
    written: Checkpoint,
    tokenizer: Tokenizer,
    target: Format,
    baseline: str,
    threads: int,
) -> Check:
    """Runs the sample text through both models: the original in `baseline`, the new one as it will be used.

    Raises ValueError where the tokenizer makes no tokens of the text.
    """
    program = build_program(original.config)
    limit = min(MAX_POSITIONS, program.max_model_len)
    token_ids = [token for token in tokenizer.encode(SAMPLE) if token < program.vocab_size][:limit]
    if not token_ids:
        raise ValueError(f"{original.path}: its tokenizer makes no tokens of the check's text; use --no-check")
    expected = _executor(program, original, baseline, threads)
    try:
        actual = _executor(build_program(written.config), written, "auto", threads)
        try:
            result = measure(actual, expected, program, token_ids, _BLOCK_SIZE, _CHUNK)
        finally:
            actual.close()
    finally:
        expected.close()
    return Check(
        positions=len(result.kl),
        mean_kl=float(result.kl.mean()),
        median_kl=float(np.median(result.kl)),
        worst_kl=float(result.kl.max()),
        top1_agreement=float(result.same_top.mean()),
        bound=BOUNDS[target],
        baseline=f"{expected.name} {baseline}",
    )


def _executor(program: Program, checkpoint: Checkpoint, dtype: str, threads: int) -> Executor:
    if unsupported_reasons("native"):
        from octavo.executors.reference import ReferenceExecutor

        return ReferenceExecutor(program, checkpoint, threads)
    from octavo.executors.native import NativeExecutor

    return NativeExecutor(program, checkpoint, dtype, threads)  # type: ignore[arg-type]
