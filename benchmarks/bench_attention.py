"""Time of one attention layer: decode and prefill, per instruction set, cache type and block size.

    python benchmarks/bench_attention.py [--threads 2] [--isa amx] [--dtype bfloat16] [--block-sizes 32,64]

Each call walks through the layers' places as a step does, so that the CPU's caches hold no more of K and V
than they would there. The figure is the least over the calls. On a machine that is shared with others,
--cpu-time with --threads 1 shows what the kernel itself needs.
"""

from __future__ import annotations

import argparse
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
    Case("decode 1 x 256", 1, 256, 1),
    Case("decode 1 x 1024", 1, 1024, 1),
    Case("decode 1 x 8192", 1, 8192, 1),
    Case("decode 64 x 1024", 64, 1024, 1, layers=4),
    Case("decode 8 x 2048, 32/8 heads of 128", 8, 2048, 1, 4, 32, 8, 128),
    Case("prefill 1 x 1024, 4/1 heads of 256", 1, 1024, 1024, 4, 4, 1, 256),
)


def measure(case: Case, block_size: int, team: _native.ThreadTeam, options: argparse.Namespace) -> float:
    """Least seconds per layer."""
    blocks = -(-case.context // block_size)
    cache = _native.KvCache(
        num_blocks=case.seqs * blocks,
        block_size=block_size,
        places=case.layers,
        kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        dtype=options.dtype,
    )
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((block_size * blocks, case.kv_heads, case.head_dim), dtype=np.float32)
    for layer in range(case.layers):
        for seq in range(case.seqs):
            slots = np.arange(len(rows), dtype=np.int32) + seq * len(rows)
            cache.write(layer, rows, rows, slots)
    ids = np.arange(case.seqs * blocks) if options.ordered else rng.permutation(case.seqs * blocks)
    seconds = _native.time_attention(
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
        options.repeats,
    )
    return min(cpu if options.cpu_time else wall for wall, cpu in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default=_native.detect_isa())
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--block-sizes", default="16,32,64,256")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--ordered", action="store_true", help="blocks of a sequence lie one after the other")
    parser.add_argument("--cpu-time", action="store_true", help="the calling thread's CPU time, not wall time")
    options = parser.parse_args()
    team = _native.ThreadTeam(options.threads)
    sizes = [int(size) for size in options.block_sizes.split(",")]
    print(f"{options.isa} {options.dtype}, {options.threads} threads; microseconds per layer (GB/s of K and V)")
    print(f"{'block size':36}" + "".join(f"{size:>16}" for size in sizes))
    for case in CASES:
        if options.only not in case.name:
            continue
        size = 2 if options.dtype == "bfloat16" else 4
        kv_bytes = case.seqs * case.context * case.kv_heads * case.head_dim * 2 * size
        cells = ""
        for block_size in sizes:
            seconds = measure(case, block_size, team, options)
            cells += f"{seconds * 1e6:9.1f} ({kv_bytes / seconds / 1e9:4.0f})"
        print(f"{case.name:36}{cells}", flush=True)


if __name__ == "__main__":
    main()
