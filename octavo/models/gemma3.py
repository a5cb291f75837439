"""Gemma 3 (text): sliding windows in most layers, two rope bases, a norm before and after each part.

Its norms multiply by 1 + weight: the loader adds the 1, and the program sees plain RMS norms.
"""

from __future__ import annotations

import numpy as np

from octavo.models.decoder import (
    attention,
    check_config,
    context_length,
    finish,
    gated_mlp,
    layer_windows,
    model_rope,
    rows_that_go_on,
)
from octavo.models.model_config import ModelConfig
from octavo.program.builder import ProgramBuilder, Projection
from octavo.program.operations import Program, Rope, Value
from octavo.program.rope import make_rope


def build_gemma3(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """Windowed layers turn by rope_local_theta, unscaled; full ones by rope_theta and rope_scaling."""
    check_config(config)
    length = max_model_len or context_length(config)
    full_rope = model_rope(config, length)
    local_theta = config.rope_theta if config.rope_local_theta is None else config.rope_local_theta
    local_rope = make_rope(config.head_dim, local_theta, None, config.max_position_embeddings)
    # Transformers rounds the scale to the type of the weights; ours is what it is in float32.
    embedding_scale = float(np.sqrt(np.float32(config.hidden_size)))
    builder = ProgramBuilder(config.vocab_size, length)
    residual = builder.embed("embed_tokens.weight", config.hidden_size, embedding_scale)
    for number, window in enumerate(layer_windows(config)):
        rope = full_rope if window is None else local_rope
        residual = _emit_layer(builder, config, residual, number, rope, window)
    return finish(builder, config, residual)


def _emit_layer(
    builder: ProgramBuilder,
    config: ModelConfig,
    residual: Value,
    number: int,
    rope: Rope,
    window: int | None,
) -> Value:
    """One layer, which adds to the residual. Returns those of its rows that go on."""
    layer, hidden, eps = f"layers.{number}", config.hidden_size, config.rms_norm_eps
    scalar = config.head_dim if config.query_pre_attn_scalar is None else config.query_pre_attn_scalar
    if scalar <= 0:
        raise ValueError(f"query_pre_attn_scalar is {scalar}, must be above 0")
    normed = builder.rms_norm(residual, f"{layer}.input_layernorm.weight", eps)
    attended = attention(
        builder, config, normed, f"{layer}.self_attn", rope, window, scalar**-0.5,
        bias=config.attention_bias, qk_norm=True,
    )  # fmt: skip
    residual, attended = rows_that_go_on(builder, config, number, residual, attended)
    o_proj = Projection(f"{layer}.self_attn.o_proj", hidden, config.attention_out_bias)
    projected = builder.linear(attended, (o_proj,), "projected")
    normed = builder.rms_norm(projected, f"{layer}.post_attention_layernorm.weight", eps)
    builder.add_into(residual, normed)
    normed = builder.rms_norm(residual, f"{layer}.pre_feedforward_layernorm.weight", eps)
    gated = gated_mlp(builder, config, normed, f"{layer}.mlp", bias=False)
    projected = builder.linear(gated, (Projection(f"{layer}.mlp.down_proj", hidden),), "projected")
    normed = builder.rms_norm(projected, f"{layer}.post_feedforward_layernorm.weight", eps)
    builder.add_into(residual, normed)
    return residual
