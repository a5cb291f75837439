"""Qwen3: each head of q and k is normed before it is rotated."""

from __future__ import annotations

from octavo.models.decoder import layer_windows, pre_norm_decoder
from octavo.models.model_config import ModelConfig
from octavo.program.operations import Program


def build_qwen3(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """The pre-norm decoder with q and k norms."""
    return pre_norm_decoder(
        config,
        max_model_len,
        windows=layer_windows(config),
        attention_bias=config.attention_bias,
        attention_out_bias=config.attention_out_bias,
        mlp_bias=False,
        qk_norm=True,
    )
