"""Mistral: Llama without biases, and where there is a sliding window, every layer uses it."""

from __future__ import annotations

from octavo.models.decoder import pre_norm_decoder
from octavo.models.model_config import ModelConfig
from octavo.program.operations import Program


def build_mistral(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """All layers have the window sliding_window (None: full attention), as in transformers."""
    window = config.sliding_window
    if window is not None and window < 1:
        raise ValueError(f"sliding_window is {window}, must be at least 1")
    return pre_norm_decoder(
        config,
        max_model_len,
        windows=(window,) * config.num_hidden_layers,
        attention_bias=False,
        attention_out_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )
