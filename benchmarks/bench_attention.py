"""Time of one attention layer: decode and prefill, per instruction set, cache type and block size.

    python benchmarks/bench_attention.py [--threads 2] [--isa amx] [--dtypes bfloat16,int8] [--block-sizes 32,64]

Each call walks through the layers' places as a step does, so that the CPU's caches hold no more of K and V
than they would there. The columns take turns, and the figure is the least over the calls. On a machine that
is shared with others, --cpu-time with --threads 1 shows what the kernel itself needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from octavo import _native


@dataclass(frozen=True)
class Case:
    """`seqs` sequences of `context` tokens, of which the last `new` are computed."""

    name: str
    seqs: int
    context: int
    new: int
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64


CASES = (
    Case("prefill 1 x 1024", 1, 1024, 1024),
    Case("prefill 1 x 1024, one layer", 1, 1024, 1024, layers=1),
    Case("prefill 1 x 256", 1, 256, 256),
    Case("chunk of 512 at 8192", 1, 8192, 512, layers=4),
    Case("decode 32 x 256", 32, 256, 1),
    Case("decode 32 x 256, one layer", 32, 256, 1, layers=1),
    Case("decode 1 x 128", 1, 128, 1),
    Case("decode 1 x 256", 1, 256, 1),
    Case("decode 1 x 1024", 1, 1024, 1),
    Case("decode 1 x 2048", 1, 2048, 1),
    Case("decode 1 x 8192", 1, 8192, 1),
    Case("decode 32 x 2048", 32, 2048, 1, layers=4),
    Case("chunk of 512 at 2048", 1, 2048, 512, layers=4),
    Case("decode 64 x 1024", 64, 1024, 1, layers=4),
    Case("decode 8 x 2048, 32/8 heads of 128", 8, 2048, 1, 4, 32, 8, 128),
    Case("prefill 1 x 1024, 4/1 heads of 256", 1, 1024, 1024, 4, 4, 1, 256),
)


Call = Callable[[], float]


def prepare(case: Case, block_size: int, dtype: str, team: _native.ThreadTeam, options: argparse.Namespace) -> Call:
    """A function that runs the case once and returns seconds per layer."""
    blocks = -(-case.context // block_size)
    cache = _native.KvCache(
        num_blocks=case.seqs * blocks,
        block_size=block_size,
        places=case.layers,
        kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        dtype=dtype,
    )
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((block_size * blocks, case.kv_heads, case.head_dim), dtype=np.float32)
    for layer in range(case.layers):
        for seq in range(case.seqs):
            slots = np.arange(len(rows), dtype=np.int32) + seq * len(rows)
            cache.write(layer, rows, rows, slots)
    ids = np.arange(case.seqs * blocks) if options.ordered else rng.permutation(case.seqs * blocks)
    arguments = (
        rng.standard_normal((case.seqs * case.new, case.heads * case.head_dim), dtype=np.float32),
        cache,
        np.arange(case.seqs + 1, dtype=np.int32) * case.new,
        np.full(case.seqs, case.context, np.int32),
        ids.astype(np.int32).reshape(case.seqs, blocks),
        case.heads,
        case.kv_heads,
        0,
        case.head_dim**-0.5,
        options.isa,
        team,
        1,
    )

    def run() -> float:
        ((wall, cpu),) = _native.time_attention(*arguments)
        return cpu if options.cpu_time else wall

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default=_native.detect_isa())
    parser.add_argument("--dtypes", default="bfloat16", help="of K and V: bfloat16, float32, int8")
    parser.add_argument("--block-sizes", default="16,32,64,256")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--ordered", action="store_true", help="blocks of a sequence lie one after the other")
    parser.add_argument("--cpu-time", action="store_true", help="the calling thread's CPU time, not wall time")
    options = parser.parse_args()
    team = _native.ThreadTeam(options.threads)
    columns = [(int(size), dtype) for size in options.block_sizes.split(",") for dtype in options.dtypes.split(",")]
    print(f"{options.isa}, {options.threads} threads; microseconds per layer (GB/s of K and V)")
    print(f"{'':36}" + "".join(f"{f'{dtype} {size}':>16}" for size, dtype in columns))
    for case in CASES:
        if options.only not in case.name:
            continue
        calls = [prepare(case, size, dtype, team, options) for size, dtype in columns]
        rounds = [[call() for call in calls] for _ in range(options.repeats)]
        cells = ""
        for (_, dtype), seconds in zip(columns, np.min(rounds, axis=0), strict=True):
            row_bytes = {"float32": 4 * case.head_dim, "bfloat16": 2 * case.head_dim, "int8": case.head_dim + 4}[dtype]
            kv_bytes = case.seqs * case.context * case.kv_heads * 2 * row_bytes
            cells += f"{seconds * 1e6:9.1f} ({kv_bytes / seconds / 1e9:4.0f})"
        print(f"{case.name:36}{cells}", flush=True)


if __name__ == "__main__":
    main()
