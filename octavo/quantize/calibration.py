"""How large the inputs of each linear are, on a text: by this the errors of its weights count."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from octavo.config import format_bytes
from octavo.divergence import whole_step
from octavo.memory import memory_facts
from octavo.models.registry import build_program
from octavo.program.operations import Linear
from octavo.quantize.sample import CALIBRATION

if TYPE_CHECKING:
    from octavo.loaders.checkpoint import Checkpoint
    from octavo.text.tokenizer import Tokenizer

MAX_TOKENS: Final = 768
_CHUNK: Final = 128
_BLOCK_SIZE: Final = 16
_LEAST: Final = 0.01
"""of an input's importance, where the mean is 1: a text is no proof that an input is always small"""

Importance = dict[str, npt.NDArray[np.float32]]
"""canonical name of a matrix -> [in], mean 1: the mean square of each of its inputs"""


def require_memory(checkpoint: Checkpoint) -> None:
    """Raises ValueError, with both numbers, where the model does not fit into the free memory in float32."""
    needed = 4 * sum(prod(source.shape) for source in checkpoint.tensors.values())
    free = memory_facts().free
    if free is not None and needed > free:
        raise ValueError(
            f"weighing the inputs needs about {format_bytes(needed)} of memory, {format_bytes(free)} are free; "
            "leave it out with --no-calibration"
        )


def measure_importance(checkpoint: Checkpoint, tokenizer: Tokenizer, threads: int) -> Importance:
    """Runs the calibration text through the model in float32. Raises ValueError where the tokenizer makes no
    tokens of it."""
    from octavo.executors.reference import ReferenceExecutor

    program = build_program(checkpoint.config)
    limit = min(MAX_TOKENS, program.max_model_len)
    token_ids = [token for token in tokenizer.encode(CALIBRATION) if token < program.vocab_size][:limit]
    if not token_ids:
        raise ValueError(f"{checkpoint.path}: its tokenizer makes no tokens of the text; use --no-calibration")
    squares: dict[str, npt.NDArray[np.float64]] = {}

    def observe(linear: Linear, x: npt.NDArray[np.float32]) -> None:
        found = np.einsum("ti,ti->i", x, x, dtype=np.float64)
        for name in linear.weights:
            squares[name] = squares.get(name, 0.0) + found

    executor = ReferenceExecutor(program, checkpoint, threads)
    executor.observe_linear = observe
    blocks, groups = -(-len(token_ids) // _BLOCK_SIZE), len(program.kv_groups)
    executor.reserve_kv(groups * blocks, _BLOCK_SIZE)
    tables = tuple(np.arange(group * blocks, (group + 1) * blocks, dtype=np.int32)[None] for group in range(groups))
    # Weights that are not finite are found, and named, when they are written.
    with np.errstate(all="ignore"):
        for first in range(0, len(token_ids), _CHUNK):
            executor.execute(whole_step(token_ids[first : first + _CHUNK], first, tables))
    executor.close()
    return {name: _importance(sums) for name, sums in squares.items()}


def _importance(squares: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    mean = squares.mean()
    if not (np.isfinite(mean) and mean > 0):
        return np.ones(len(squares), np.float32)
    importance: npt.NDArray[np.float32] = np.maximum(squares / mean, _LEAST).astype(np.float32)
    return importance
