"""How far an executor's distributions are from full precision, over real text.

    python scripts/measure_kl.py smollm2 tests/data/real_text_smollm2.json
    python scripts/measure_kl.py MODEL IDS --candidate native:bfloat16 --baseline reference
    python scripts/measure_kl.py smollm2 TEXT.txt --candidate native:auto:int8 --contexts 128,2048,8192
    python scripts/measure_kl.py smollm2 IDS --candidate native:auto:auto:int8 --baseline native

An executor is NAME[:DTYPE[:KV_CACHE_DTYPE[:ACTIVATION_DTYPE]]]; NAME is reference (DTYPE: auto) or native. Prints for
each context the mean Kullback-Leibler divergence KL(baseline || candidate) of its positions in nats, how often both
have the same most likely token, and the worst position.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from octavo.divergence import measure
from octavo.executors.interface import Executor
from octavo.executors.reference import ReferenceExecutor
from octavo.models.registry import build_program
from octavo.program.operations import Program

if TYPE_CHECKING:
    from octavo.loaders.checkpoint import Checkpoint


def make_executor(kind: str, program: Program, checkpoint: Checkpoint, threads: int) -> Executor:
    """An executor by its word on the command line."""
    name, dtype, kv_cache_dtype, activation_dtype, *rest = (*kind.split(":"), "auto", "auto", "auto")
    if name == "reference" and dtype == activation_dtype == "auto" and len(rest) < 3:
        return ReferenceExecutor(program, checkpoint, threads, kv_cache_dtype)
    if name != "native" or len(rest) > 3:
        raise ValueError(f"executor is {kind!r}; known are reference[:auto[:KV]] and native[:DTYPE[:KV[:ACTIVATIONS]]]")
    from octavo.executors.native import NativeExecutor

    return NativeExecutor(
        program, checkpoint, dtype, threads, kv_cache_dtype=kv_cache_dtype, activation_dtype=activation_dtype
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="alias, GGUF file or directory")
    parser.add_argument("ids", type=Path, help="JSON list of token ids, or text in a file *.txt")
    parser.add_argument("--candidate", default="native")
    parser.add_argument("--baseline", default="native:float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", default="2000", help="numbers of first positions to report, ascending")
    arguments = parser.parse_args()

    from octavo.loaders.checkpoint import open_checkpoint
    from octavo.loaders.hub import resolve_model

    checkpoint = open_checkpoint(resolve_model(arguments.model))
    program = build_program(checkpoint.config)
    candidate, baseline = (
        make_executor(kind, program, checkpoint, arguments.threads)
        for kind in (arguments.candidate, arguments.baseline)
    )
    contexts = [int(context) for context in arguments.contexts.split(",")]
    token_ids = read_ids(arguments.ids, checkpoint)[: contexts[-1]]
    result = measure(candidate, baseline, program, token_ids)
    for context in contexts:
        kl, same_top = result.kl[:context], result.same_top[:context]
        print(
            f"positions {len(kl)}: mean KL {kl.mean():.6f} nats (median {np.median(kl):.6f}, "
            f"worst {kl.max():.4f} at {kl.argmax()}), top-1 {100 * same_top.mean():.2f} %"
        )


def read_ids(path: Path, checkpoint: Checkpoint) -> list[int]:
    """Token ids of a JSON file, or of a text with the model's own tokenizer."""
    if path.suffix != ".txt":
        ids: list[int] = json.loads(path.read_text())
        return ids
    from octavo.text.tokenizer import load_tokenizer

    return load_tokenizer(checkpoint.tokenizer_files()).encode(path.read_text())


if __name__ == "__main__":
    main()
