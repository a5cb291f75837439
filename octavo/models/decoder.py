"""What the recipes share: checks of the configuration, attention, the gated MLP, and the pre-norm decoder."""

from __future__ import annotations

from typing import Literal

from octavo.models.model_config import ModelConfig
from octavo.program.builder import ProgramBuilder, Projection
from octavo.program.operations import Program, Rope, Value
from octavo.program.rope import make_rope

_ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
}


def check_config(config: ModelConfig) -> None:
    """Raises ValueError, with field and value, for what no recipe can build."""
    for field in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim",
                  "num_attention_heads", "num_key_value_heads", "max_position_embeddings"):  # fmt: skip
        if getattr(config, field) < 1:
            raise ValueError(f"{field} is {getattr(config, field)}, must be at least 1")
    if config.num_attention_heads % config.num_key_value_heads:
        raise ValueError(
            f"num_attention_heads is {config.num_attention_heads}, "
            f"not a multiple of num_key_value_heads {config.num_key_value_heads}"
        )
    if config.layer_windows and len(config.layer_windows) != config.num_hidden_layers:
        raise ValueError(f"layer_windows has {len(config.layer_windows)} entries for {config.num_hidden_layers} layers")
    if any(config.layer_windows) and (config.sliding_window is None or config.sliding_window < 1):
        raise ValueError(f"sliding_window is {config.sliding_window}, but layer_windows has layers that use it")
    if config.hidden_act not in _ACTIVATIONS:
        raise ValueError(f"hidden_act is {config.hidden_act!r}; known are {', '.join(sorted(_ACTIVATIONS))}")


def layer_windows(config: ModelConfig) -> tuple[int | None, ...]:
    """The window of each layer in tokens, None for full attention."""
    uses = config.layer_windows or (False,) * config.num_hidden_layers
    return tuple(config.sliding_window if windowed else None for windowed in uses)


def context_length(config: ModelConfig) -> int:
    """The longest context that the model was made for.

    max_position_embeddings, but for yarn, which states the length before it was stretched and the factor.
    """
    scaling = config.rope_scaling or {}
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    if scaling.get("rope_type") == "yarn" and original and factor:
        return max(config.max_position_embeddings, int(original * factor))
    return config.max_position_embeddings


def longest_context(config: ModelConfig) -> int:
    """The longest context that a user may ask for: dynamic rope stretches its table up to its factor, on demand.

    Without being asked for, it serves the length that it was made for, with the plain table.
    """
    scaling = config.rope_scaling or {}
    if scaling.get("rope_type") == "dynamic":
        return max(context_length(config), int(config.max_position_embeddings * scaling["factor"]))
    return context_length(config)


def model_rope(config: ModelConfig, max_model_len: int) -> Rope:
    """The rotary table of rope_theta and rope_scaling."""
    return make_rope(
        config.head_dim,
        config.rope_theta,
        config.rope_scaling,
        config.max_position_embeddings,
        max_model_len,
    )


def attention(
    builder: ProgramBuilder,
    config: ModelConfig,
    x: Value,
    prefix: str,
    rope: Rope,
    window: int | None,
    scale: float,
    *,
    bias: bool,
    qk_norm: bool,
) -> Value:
    """Attention of one layer up to, not with, the output projection: [T, heads * head_dim]."""
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    qkv = builder.linear(
        x,
        (
            Projection(f"{prefix}.q_proj", q_width, bias),
            Projection(f"{prefix}.k_proj", kv_width, bias),
            Projection(f"{prefix}.v_proj", kv_width, bias),
        ),
        "qkv",
    )
    q, k, v = builder.split(qkv, ("q", q_width), ("k", kv_width), ("v", kv_width))
    if qk_norm:
        builder.head_norm(q, f"{prefix}.q_norm.weight", config.rms_norm_eps, heads)
        builder.head_norm(k, f"{prefix}.k_norm.weight", config.rms_norm_eps, kv_heads)
    builder.rope(q, heads, rope)
    builder.rope(k, kv_heads, rope)
    layer = builder.kv_layer(kv_heads, head_dim, window)
    builder.write_kv(k, v, layer)
    return builder.paged_attention(q, layer, heads, scale)


def gated_mlp(builder: ProgramBuilder, config: ModelConfig, x: Value, prefix: str, *, bias: bool) -> Value:
    """The MLP of one layer up to, not with, the down projection: [T, intermediate_size]."""
    width = config.intermediate_size
    merged = builder.linear(
        x,
        (Projection(f"{prefix}.gate_proj", width, bias), Projection(f"{prefix}.up_proj", width, bias)),
        "gate_up",
    )
    gate, up = builder.split(merged, ("gate", width), ("up", width))
    return builder.gated_activation(gate, up, _ACTIVATIONS[config.hidden_act])


def rows_that_go_on(builder: ProgramBuilder, config: ModelConfig, layer: int, *values: Value) -> tuple[Value, ...]:
    """Behind the attention of a layer, of each value: all rows, of the last layer the wanted ones.

    No token attends to what the last layer makes there.
    """
    last = layer == config.num_hidden_layers - 1
    return tuple(builder.select_rows(value) for value in values) if last else values


def finish(builder: ProgramBuilder, config: ModelConfig, residual: Value) -> Program:
    """The final norm and the head, over wanted rows."""
    final = builder.rms_norm(residual, "norm.weight", config.rms_norm_eps)
    builder.logits(final, "embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight")
    return builder.build()


def pre_norm_decoder(
    config: ModelConfig,
    max_model_len: int | None,
    *,
    windows: tuple[int | None, ...],
    attention_bias: bool,
    attention_out_bias: bool,
    mlp_bias: bool,
    qk_norm: bool,
) -> Program:
    """Norm, attention, add; norm, gated MLP, add; both projections go straight into the residual."""
    check_config(config)
    length = max_model_len or context_length(config)
    rope = model_rope(config, length)
    hidden, eps = config.hidden_size, config.rms_norm_eps
    builder = ProgramBuilder(config.vocab_size, length)
    residual = builder.embed("embed_tokens.weight", hidden)
    for number, window in enumerate(windows):
        layer = f"layers.{number}"
        normed = builder.rms_norm(residual, f"{layer}.input_layernorm.weight", eps)
        attended = attention(
            builder, config, normed, f"{layer}.self_attn", rope, window, config.head_dim**-0.5,
            bias=attention_bias, qk_norm=qk_norm,
        )  # fmt: skip
        residual, attended = rows_that_go_on(builder, config, number, residual, attended)
        o_proj = Projection(f"{layer}.self_attn.o_proj", hidden, attention_out_bias)
        builder.linear_into(residual, attended, o_proj)
        normed = builder.rms_norm(residual, f"{layer}.post_attention_layernorm.weight", eps)
        gated = gated_mlp(builder, config, normed, f"{layer}.mlp", bias=mlp_bias)
        builder.linear_into(residual, gated, Projection(f"{layer}.mlp.down_proj", hidden, mlp_bias))
    return finish(builder, config, residual)
