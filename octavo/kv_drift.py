"""How far KV in int8 moves a model's distributions: measured over a short text, once per model file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo.loaders.model_cache import octavo_home, read_note, write_note
from octavo.quantize.sample import SAMPLE

if TYPE_CHECKING:
    from octavo.executors.native import NativeExecutor
    from octavo.executors.reference import ReferenceExecutor
    from octavo.program.operations import Program

KV_DRIFT_BOUND: Final = 0.01
"""Mean KL in nats: what the other approximations of the default format are held to."""
MAX_POSITIONS: Final = 256
_CHUNK: Final = 64
_BLOCK_SIZE: Final = 64


@dataclass(frozen=True, slots=True)
class KVDrift:
    """KL(KV in the default format || KV in int8) over the positions of a sample text."""

    positions: int
    mean_kl: float
    """nats"""
    top1_agreement: float
    """Share of positions where both have the same most likely token"""


def measure_kv_drift(
    executor: NativeExecutor | ReferenceExecutor, program: Program, encode: Callable[[str], list[int]]
) -> KVDrift:
    """Runs the sample text through two twins of `executor`, with KV in the default format and in int8.

    Their memory is gone afterwards; the executor itself is not touched. It must not run meanwhile.
    """
    from octavo.divergence import measure

    token_ids = encode(SAMPLE)[: min(MAX_POSITIONS, program.max_model_len)]
    exact, rounded = executor.with_kv_cache_dtype("auto"), executor.with_kv_cache_dtype("int8")
    result = measure(rounded, exact, program, token_ids, _BLOCK_SIZE, _CHUNK)
    return KVDrift(len(result.kl), float(result.kl.mean()), float(result.same_top.mean()))


def find_kv_drift(
    executor: NativeExecutor | ReferenceExecutor,
    program: Program,
    encode: Callable[[str], list[int]],
    fingerprint: str,
    home: Path | None = None,
) -> KVDrift:
    """The drift of a model file, from $OCTAVO_HOME where it has been measured before with such an executor."""
    key = "\n".join((fingerprint, executor.name, executor.default_kv_cache_dtype, SAMPLE))
    path = octavo_home(home) / "kv_drift" / f"{sha256(key.encode()).hexdigest()[:32]}.json"
    with suppress(TypeError):
        return KVDrift(**(read_note(path) or {}))
    drift = measure_kv_drift(executor, program, encode)
    with suppress(OSError):  # where it cannot be kept, it will be measured again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_note(path, asdict(drift))
    return drift
