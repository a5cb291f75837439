"""Times all linear layers of a model's shape, distinct weights per layer, at several numbers of rows.

    python benchmarks/linear_models.py [--shape smollm2] [--isa amx] [--threads 2] [--rows 1,4,32]

Weights are random, inputs are prepared beforehand, and a barrier follows every weight, as in a step of the
executor. The figure is the sum of each weight's least time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from octavo import _native

# layers, hidden, feed-forward, key-value width, query width, vocabulary
SHAPES = {
    "smollm2": (30, 576, 1536, 192, 576, 49152),
    "gemma3-270m": (18, 640, 2048, 256, 1024, 262144),
    "1b": (16, 2048, 8192, 512, 2048, 128256),
}
KINDS = {"Q4_1": (32, 20), "Q8_0": (32, 34), "Q6_K": (256, 210), "Q4_K": (256, 144)}


def random_weight(
    n: int, k: int, kind: str, team: _native.ThreadTeam, arena: _native.WeightArena
) -> tuple[_native.PackedWeight, float]:
    """A random packed weight and the seconds its packing took."""
    values, size = KINDS[kind]
    rng = np.random.default_rng(n * k)
    raw = rng.integers(0, 256, (n * k // values, size), dtype=np.uint8)
    for at in {"Q4_1": (0, 2), "Q8_0": (0,), "Q6_K": (208,), "Q4_K": (0, 2)}[kind]:
        scales = (rng.uniform(0.5, 1.0, len(raw)) * 0.01).astype(np.float16)
        raw[:, at : at + 2] = scales[:, None].view(np.uint8)
    start = time.perf_counter()
    fmt = _native.formats_for(kind)[0]
    weight = _native.PackedWeight.pack(fmt, kind, raw, n, k, team, arena=arena)
    return weight, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--isa", default=_native.detect_isa())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,256,1024")
    parser.add_argument("--kind", choices=KINDS, default="Q4_1")
    parser.add_argument("--head", choices=KINDS, default="Q8_0")
    parser.add_argument("--repeats", type=int, default=0, help="0: more for fewer rows")
    options = parser.parse_args()
    layers, hidden, inner, kv, query, vocabulary = SHAPES[options.shape]
    team, arena = _native.ThreadTeam(options.threads), _native.WeightArena()
    attention = [(query, hidden), (kv, hidden), (kv, hidden), (hidden, query)]
    shapes = [*attention, (inner, hidden), (inner, hidden), (hidden, inner)]
    packed = [random_weight(n, k, options.kind, team, arena) for _ in range(layers) for n, k in shapes]
    head, head_seconds = random_weight(vocabulary, hidden, options.head, team, arena)
    weights = [weight for weight, _ in packed]
    megabytes = sum(weight.nbytes for weight in weights) / 1e6
    seconds = sum(each for _, each in packed) + head_seconds
    print(
        f"{options.shape}, {options.isa}, {options.threads} threads, packed in {seconds * 1e3:.0f} ms:",
        end=" ",
    )
    print(f"layers {options.kind} {megabytes:.1f} MB, head {options.head} {head.nbytes / 1e6:.1f} MB")
    operations = 2 * sum(weight.n * weight.k for weight in weights)
    print("rows  layers ms   TOP/s    GB/s   head ms")
    for rows in map(int, options.rows.split(",")):
        repeats = options.repeats or (40 if rows <= 64 else 4)
        best = _native.time_linears(weights, rows, options.isa, team, repeats)
        speed = operations * rows / best / 1e12
        line = f"{rows:4d} {best * 1e3:10.2f} {speed:7.3f} {megabytes / best / 1e3:7.1f}"
        if rows <= 64:
            line += f" {_native.time_linears([head], rows, options.isa, team, repeats) * 1e3:9.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
