"""Checkpoints made of arrays, for tests that need no file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.models.model_config import ModelConfig
from octavo.program.operations import Program

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ArrayTensor:
    """A float32 tensor of a checkpoint."""

    name: str
    array: Float32Array
    kind: str = "F32"
    row_order: None = None
    offset: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(self.array, np.float32).view(np.uint8).reshape(-1)

    def dequantize(self) -> Float32Array:
        return self.array


@dataclass(frozen=True)
class ArrayCheckpoint:
    """Named arrays with the face of a checkpoint."""

    tensors: Mapping[str, ArrayTensor]
    config: ModelConfig | None = None


def checkpoint_of(arrays: Mapping[str, Float32Array]) -> ArrayCheckpoint:
    """A checkpoint of float32 arrays."""
    return ArrayCheckpoint({name: ArrayTensor(name, array) for name, array in arrays.items()})


def random_checkpoint(program: Program, seed: int = 0) -> ArrayCheckpoint:
    """Normal random weights of the right shapes; norms around 1."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, shape in program.weights.items():
        values = generator.standard_normal(shape, np.float32) * np.float32(0.2)
        arrays[name] = values + np.float32(1 if name.endswith("norm.weight") else 0)
    return checkpoint_of(arrays)


def small_config(**changes: Any) -> ModelConfig:
    """A Llama of two layers, 4 query and 2 KV heads; change what the test is about."""
    settings: dict[str, Any] = {
        "family": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
        "rope_theta": 10000.0,
    }
    return ModelConfig(**(settings | changes))
