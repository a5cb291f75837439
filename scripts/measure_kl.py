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
