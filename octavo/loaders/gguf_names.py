"""GGUF tensor names <-> canonical names, and the row order of rotated projections."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

_GLOBAL: Final = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
_BLOCK: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PATTERN: Final = re.compile(r"(?:blk\.(0|[1-9][0-9]{0,5})\.)?([a-z_]+)\.(weight|bias)")


def canonical_name(name: str, family: str) -> str | None:
    """The canonical name, or None for a tensor that no recipe reads.

    A llama layer has two norms, and ffn_norm is the one after attention; gemma3 has four, and it is the one
    before the feed-forward part.
    """
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    layer, part, suffix = match.groups()
    if layer is None:
        return f"{_GLOBAL[part]}.{suffix}" if part in _GLOBAL else None
    if part == "ffn_norm":
        target = "pre_feedforward_layernorm" if family == "gemma3" else "post_attention_layernorm"
    elif part in _BLOCK:
        target = _BLOCK[part]
    else:
        return None
    return f"layers.{layer}.{target}.{suffix}"


def gguf_name(name: str, family: str) -> str:
    """The name in a GGUF file of the canonical `name`: the inverse of `canonical_name`.

    Raises ValueError for a name that no recipe has.
    """
    module, _, suffix = name.rpartition(".")
    whole = {target: part for part, target in _GLOBAL.items()}
    if module in whole:
        return f"{whole[module]}.{suffix}"
    prefix, layer, target = (*module.split(".", 2), "", "")[:3]
    parts = {target: part for part, target in _BLOCK.items()}
    parts["pre_feedforward_layernorm" if family == "gemma3" else "post_attention_layernorm"] = "ffn_norm"
    if prefix != "layers" or target not in parts:
        raise ValueError(f"tensor {name!r} has no name in a GGUF file of the family {family}")
    return f"blk.{layer}.{parts[target]}.{suffix}"


def rotary_row_order(num_heads: int, head_dim: int) -> NDArray[np.int32]:
    """Where each row of a q or k projection lies in a llama GGUF: [num_heads * head_dim] row numbers.

    Such files interleave the two halves of a head (rows 0, h/2, 1, h/2 + 1, ... of the Hugging Face layout),
    because their rope turns neighbours. Row j * h/2 + i of a head (j: half, i: place in it) is the file's
    row 2 i + j.
    """
    within = np.arange(head_dim, dtype=np.int32).reshape(head_dim // 2, 2).T.reshape(head_dim)
    starts = np.arange(num_heads, dtype=np.int32)[:, None] * np.int32(head_dim)
    return (starts + within).reshape(num_heads * head_dim)
