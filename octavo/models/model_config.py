"""The shape of a model, read from a checkpoint of any format and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a recipe needs to know. Every field has the meaning of the same name in a Hugging Face config.json."""

    family: str
    """llama, mistral, qwen2, qwen3 or gemma3: the name of the recipe"""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None = None
    """Normalised: has "rope_type" (linear, dynamic, yarn, llama3) and that type's own keys; None for plain rope"""
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """q, k and v projections have biases (Qwen2; some Llama)"""
    attention_out_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    """in tokens; None where no layer uses one"""
    layer_windows: tuple[bool, ...] = ()
    """per layer, true where it uses the sliding window; empty where none does"""
    rope_local_theta: float | None = None
    """base of the windowed layers' rope (Gemma 3); they are not scaled"""
    query_pre_attn_scalar: float | None = None
    """attention scale is this to the power -1/2; None for head_dim"""
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = field(default=())
