"""Llama 2, 3, 3.1 and 3.2, and what is built like them (SmolLM2)."""

from __future__ import annotations

from octavo.models.decoder import layer_windows, pre_norm_decoder
from octavo.models.model_config import ModelConfig
from octavo.program.operations import Program


def build_llama(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """The plain pre-norm decoder; biases as the configuration says."""
    return pre_norm_decoder(
        config,
        max_model_len,
        windows=layer_windows(config),
        attention_bias=config.attention_bias,
        attention_out_bias=config.attention_out_bias,
        mlp_bias=config.mlp_bias,
        qk_norm=False,
    )
