"""Contiguous attention, the plain way, and a program that is attention and nothing else."""

import numpy as np
import numpy.typing as npt

from octavo.program.builder import ProgramBuilder
from octavo.program.operations import Program

Float32Array = npt.NDArray[np.float32]


def attention_program(
    vocab: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    layers: int = 1,
) -> Program:
    """Embedding rows are q, k, v side by side; the head multiplies the summed attention of all layers.

    No rope, so that any head_dim will do. Weights: "qkv" [vocab, (heads + 2 kv_heads) * head_dim] and "head".
    """
    builder = ProgramBuilder(vocab, 4096)
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    qkv = builder.embed("qkv", q_width + 2 * kv_width)
    q, k, v = builder.split(qkv, ("q", q_width), ("k", kv_width), ("v", kv_width))
    total = None
    for _ in range(layers):
        layer = builder.kv_layer(kv_heads, head_dim, window)
        builder.write_kv(k, v, layer)
        attended = builder.paged_attention(q, layer, heads, scale)
        if total is None:
            total = attended
        else:
            builder.add_into(total, attended)
    assert total is not None
    builder.logits(builder.select_rows(total), "head")
    return builder.build()


def contiguous_attention(
    qkv: Float32Array, heads: int, kv_heads: int, head_dim: int, scale: float, window: int | None = None
) -> Float32Array:
    """[n, heads * head_dim], one loop per head and position, in float64."""
    q, k, v = np.split(qkv.astype(np.float64), [heads * head_dim, (heads + kv_heads) * head_dim], axis=1)
    out = np.zeros((len(qkv), heads * head_dim))
    for head in range(heads):
        columns = slice(head * head_dim, (head + 1) * head_dim)
        first = head // (heads // kv_heads) * head_dim
        for t in range(len(qkv)):
            seen = slice(0 if window is None else max(0, t - window + 1), t + 1)
            scores = k[seen, first : first + head_dim] @ q[t, columns] * scale
            weights = np.exp(scores - scores.max())
            out[t, columns] = weights / weights.sum() @ v[seen, first : first + head_dim]
    return out.astype(np.float32)
