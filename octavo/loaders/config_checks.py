"""Limits that every model configuration keeps, whatever file it came from."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from octavo.loaders.tensor_source import CheckpointError
from octavo.models.model_config import ModelConfig

_LIMITS: Final = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 24,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 14,
    "max_position_embeddings": 1 << 31,
}
MAX_LAYERS: Final = _LIMITS["num_hidden_layers"]


def check_config(config: ModelConfig, where: object) -> ModelConfig:
    """Returns `config`, or raises CheckpointError with `where`, the field, its value and the limit."""
    for field, limit in _LIMITS.items():
        value = getattr(config, field)
        if not 1 <= value <= limit:
            raise CheckpointError(f"{where}: {field} is {value}, it must be from 1 to {limit}")
    if config.num_attention_heads % config.num_key_value_heads:
        raise CheckpointError(
            f"{where}: num_attention_heads {config.num_attention_heads} is not a multiple of "
            f"num_key_value_heads {config.num_key_value_heads}"
        )
    if config.head_dim % 2:
        raise CheckpointError(f"{where}: head_dim is {config.head_dim}, it must be even for rotary positions")
    for field in ("rms_norm_eps", "rope_theta", "rope_local_theta", "query_pre_attn_scalar"):
        number = getattr(config, field)
        if number is not None and not (isfinite(number) and number > 0):
            raise CheckpointError(f"{where}: {field} is {number}, it must be a positive number")
    _check_windows(config, where)
    for token in (*config.eos_token_ids, *(() if config.bos_token_id is None else (config.bos_token_id,))):
        if not 0 <= token < config.vocab_size:
            raise CheckpointError(f"{where}: special token id {token} is not within the {config.vocab_size} tokens")
    return config


def _check_windows(config: ModelConfig, where: object) -> None:
    if config.sliding_window is None:
        if any(config.layer_windows):
            raise CheckpointError(f"{where}: layers use a sliding window, but sliding_window is not given")
    elif not 1 <= config.sliding_window <= 1 << 31:
        raise CheckpointError(f"{where}: sliding_window is {config.sliding_window}, it must be from 1 to {1 << 31}")
    if config.layer_windows and len(config.layer_windows) != config.num_hidden_layers:
        raise CheckpointError(f"{where}: {len(config.layer_windows)} layer types for {config.num_hidden_layers} layers")


def windows(window: int | None, layers: list[bool]) -> tuple[int | None, tuple[bool, ...]]:
    """(sliding_window, layer_windows) of a ModelConfig: both empty where no layer uses a window."""
    if window is None or not any(layers):
        return None, ()
    return window, tuple(layers)


def is_finite_number(value: Any) -> bool:
    """Whether `value`, from a document that nothing is known about, is a number (no bool) that a float can
    hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:
        return False


def shown(value: object) -> str:
    """`value` as an error message shows it: at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
