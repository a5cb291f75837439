"""Opens the small models in tests/models/data."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.weights import ArrayCheckpoint, ArrayTensor

from octavo.models.model_config import ModelConfig

DATA = Path(__file__).parent / "data"


@pytest.fixture
def open_model() -> Callable[[str], Any]:
    """Name of a directory in data -> checkpoint."""
    return lambda name: open_directory(DATA / name)


def open_directory(path: Path) -> ArrayCheckpoint:
    config = json.loads((path / "config.json").read_text())
    tensors = {}
    for name, array in read_safetensors(path / "model.safetensors").items():
        name = name.removeprefix("model.")
        if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            array = array + np.float32(1)
        tensors[name] = ArrayTensor(name, array)
    return ArrayCheckpoint(tensors, read_config(config))


def read_safetensors(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    arrays = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = data[8 + length + first : 8 + length + last]
            arrays[name] = to_float32(raw, entry["dtype"]).reshape(entry["shape"])
    return arrays


def to_float32(raw: bytes, dtype: str) -> Any:
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def read_config(c: dict[str, Any]) -> ModelConfig:
    rope = c["rope_parameters"]
    layer_types = c.get("layer_types") or []
    gemma = c["model_type"] == "gemma3_text"
    full = rope["full_attention"] if gemma else rope
    window = c.get("sliding_window")
    return ModelConfig(
        family="gemma3" if gemma else c["model_type"],
        **{
            key: c[key]
            for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps",
                        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
                        "tie_word_embeddings")
        },
        head_dim=c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
        rope_theta=full["rope_theta"],
        rope_scaling=None if full["rope_type"] == "default" else full,
        hidden_act=c.get("hidden_activation") or c["hidden_act"],
        attention_bias=c.get("attention_bias", False),
        attention_out_bias=c.get("attention_bias", False),
        mlp_bias=c.get("mlp_bias", False),
        sliding_window=window,
        layer_windows=tuple(kind == "sliding_attention" for kind in layer_types) if window else (),
        rope_local_theta=rope["sliding_attention"]["rope_theta"] if gemma else None,
        query_pre_attn_scalar=c.get("query_pre_attn_scalar"),
    )  # fmt: skip
