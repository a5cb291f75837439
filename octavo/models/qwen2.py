"""Qwen2 and Qwen2.5: biases on q, k and v."""

from __future__ import annotations

from octavo.models.decoder import layer_windows, pre_norm_decoder
from octavo.models.model_config import ModelConfig
from octavo.program.operations import Program


def build_qwen2(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """The q, k and v biases belong to the family: no field of its configuration speaks of them."""
    return pre_norm_decoder(
        config,
        max_model_len,
        windows=layer_windows(config),
        attention_bias=True,
        attention_out_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )
