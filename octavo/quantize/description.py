"""ModelConfig -> the metadata of a GGUF file, and a proof that it says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import log
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.gguf import GgufFile, GgufTensor
from octavo.loaders.gguf_config import gguf_model_config
from octavo.loaders.gguf_writer import NewTensor, decoded_metadata, numbers, scalar, text
from octavo.models.decoder import context_length, model_rope
from octavo.models.model_config import ModelConfig

_ARCHITECTURES: Final = {"mistral": "llama"}
_ROPE_FACTORS: Final = "rope_freqs.weight"
# What a file states otherwise, or not at all; said elsewhere: ropes by their tables, end tokens by the tokenizer's.
_NOT_COMPARED: Final = frozenset({"family", "rope_theta", "rope_scaling", "bos_token_id", "eos_token_ids"})


def model_metadata(config: ModelConfig, name: str) -> dict[str, bytes]:
    """The keys of a model called `name`, without those of its tokenizer and the tensors' types.

    A tensor of `model_tensors` belongs to them. Raises ValueError for a configuration that the format cannot express.
    """
    architecture = _ARCHITECTURES.get(config.family, config.family)
    keys = {
        "block_count": scalar("u32", config.num_hidden_layers),
        "context_length": scalar("u32", config.max_position_embeddings),
        "embedding_length": scalar("u32", config.hidden_size),
        "feed_forward_length": scalar("u32", config.intermediate_size),
        "attention.head_count": scalar("u32", config.num_attention_heads),
        "attention.head_count_kv": scalar("u32", config.num_key_value_heads),
        "attention.key_length": scalar("u32", config.head_dim),
        "attention.value_length": scalar("u32", config.head_dim),
        "attention.layer_norm_rms_epsilon": scalar("f32", config.rms_norm_eps),
        "rope.dimension_count": scalar("u32", config.head_dim),
        "rope.freq_base": scalar("f32", config.rope_theta),
        "vocab_size": scalar("u32", config.vocab_size),
        **_windows(config),
        **_rope(config),
    }
    if config.query_pre_attn_scalar is not None and config.query_pre_attn_scalar != config.head_dim:
        keys["attention.scale"] = scalar("f32", config.query_pre_attn_scalar**-0.5)
    return {
        "general.architecture": text(architecture),
        "general.type": text("model"),
        "general.name": text(name),
    } | {f"{architecture}.{key}": value for key, value in keys.items()}


def model_tensors(config: ModelConfig) -> list[NewTensor]:
    """What the format keeps in a tensor: the divisors of Llama 3's rope, [head_dim / 2]."""
    if (config.rope_scaling or {}).get("rope_type") not in ("llama3", "llama3_factors"):
        return []
    plain = model_rope(replace(config, rope_scaling=None), config.max_position_embeddings).inv_freq
    scaled = model_rope(config, config.max_position_embeddings).inv_freq
    factors = (np.array(plain) / np.array(scaled)).astype("<f4")
    return [NewTensor(_ROPE_FACTORS, factors.shape, "F32", lambda: [factors.view(np.uint8)])]


def check_description(config: ModelConfig, metadata: Mapping[str, bytes], tensors: Sequence[NewTensor]) -> None:
    """Raises ValueError unless the reader would find this very model in a file of `metadata` and `tensors`."""
    stubs = {tensor.name: GgufTensor(tensor.name, tensor.shape, tensor.kind, _bytes(tensor)) for tensor in tensors}
    file = GgufFile(Path("the file to be"), decoded_metadata(metadata), stubs, np.empty(0, np.uint8))
    read = gguf_model_config(file)
    for field in fields(ModelConfig):
        said, found = getattr(config, field.name), getattr(read, field.name)
        if field.name not in _NOT_COMPARED and not _same(said, found):
            raise ValueError(f"{field.name} is {said!r}: a GGUF file of a {config.family} cannot say this")
    length = min(context_length(config), context_length(read))
    if length < context_length(config):
        raise ValueError(f"the context of {context_length(config)} tokens: a GGUF file of this model cannot say this")
    said, found = model_rope(config, length), model_rope(read, length)
    if not np.allclose(said.inv_freq, found.inv_freq, rtol=1e-6, atol=0.0) or not _same(
        said.attention_scaling, found.attention_scaling
    ):
        raise ValueError(f"rope_scaling is {dict(config.rope_scaling or {})}: a GGUF file cannot say this")


def _windows(config: ModelConfig) -> dict[str, bytes]:
    keys = {}
    if config.rope_local_theta is not None:
        keys["rope.freq_base_swa"] = scalar("f32", config.rope_local_theta)
    if config.sliding_window is None:
        return keys
    keys["attention.sliding_window"] = scalar("u32", config.sliding_window)
    if config.family == "gemma3" or not all(config.layer_windows):
        keys["attention.sliding_window_pattern"] = numbers(np.array(config.layer_windows, np.bool_))
    return keys


def _rope(config: ModelConfig) -> dict[str, bytes]:
    """The keys of rope scaling. Dynamic rope is plain up to the length that the model was made for, which is the
    longest that a file of it serves."""
    scaling: Mapping[str, Any] = config.rope_scaling or {}
    kind = scaling.get("rope_type")
    if kind not in ("linear", "yarn"):
        return {}
    factor = float(scaling["factor"])
    keys = {"rope.scaling.type": text(kind), "rope.scaling.factor": scalar("f32", factor)}
    if kind == "linear":
        return keys
    original = scaling.get("original_max_position_embeddings", config.max_position_embeddings)
    keys["rope.scaling.original_context_length"] = scalar("u32", original)
    for key in ("beta_fast", "beta_slow"):
        if scaling.get(key) is not None:
            keys[f"rope.scaling.yarn_{key}"] = scalar("f32", scaling[key])
    usual = 1.0 + 0.1 * log(factor)
    given = model_rope(config, config.max_position_embeddings).attention_scaling
    if not _same(given, usual):
        keys["rope.scaling.attn_factor"] = scalar("f32", given / usual)
    return keys


def _same(said: object, found: object) -> bool:
    """Equal, and for numbers that the file has in float32, equal in float32."""
    if isinstance(said, float) and isinstance(found, float):
        return bool(np.isclose(said, found, rtol=1e-6, atol=0.0))
    return said == found


def _bytes(tensor: NewTensor) -> NDArray[np.uint8]:
    """The bytes of a tensor that the configuration is read from; of others nothing."""
    if tensor.name != _ROPE_FACTORS:
        return np.empty(0, np.uint8)
    return np.concatenate(list(tensor.chunks()))
