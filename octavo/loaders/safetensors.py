"""A Hugging Face directory: config.json, and model.safetensors or an index with its shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.hf_config import VISION_ARCHITECTURES, hf_model_config
from octavo.loaders.json_file import read_json_file
from octavo.loaders.safetensors_file import SafetensorsFile, StoredTensor, read_safetensors
from octavo.loaders.tensor_source import CheckpointError, TensorSource
from octavo.models.model_config import ModelConfig

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_WEIGHT_DTYPES: Final = ("F32", "F16", "BF16")
_VISION_PARTS: Final = ("vision_tower.", "vision_model.", "multi_modal_projector.")


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """What an opened directory holds."""

    config: ModelConfig
    tensors: dict[str, TensorSource]
    """by canonical name"""
    headers: tuple[NDArray[np.uint8], ...]
    """config.json, and the header of each file"""


def open_directory(path: Path) -> Directory:
    """Opens a directory. Raises CheckpointError, naming file and tensor or key, where it cannot be loaded."""
    config_path = path / "config.json"
    document, config_bytes = read_json_file(config_path)
    generation_path = path / "generation_config.json"
    generation = read_json_file(generation_path)[0] if generation_path.exists() else {}
    files = _open_files(path)
    stored = {name: (file, tensor) for file in files for name, tensor in file.tensors.items()}
    architectures = document.get("architectures")
    if isinstance(architectures, list) and any(name in VISION_ARCHITECTURES for name in map(str, architectures)):
        _refuse_vision(path, stored)
    tensors: dict[str, TensorSource] = {}
    config, tied_by_config = hf_model_config(document, generation, config_path)
    for file, tensor in stored.values():
        name = _canonical(tensor.name)
        if name.endswith("rotary_emb.inv_freq"):  # a buffer that old files carry; recomputed from the configuration
            continue
        if name in tensors:
            raise CheckpointError(f"{file.path}: tensor {tensor.name!r}: another tensor is {name!r}, too")
        tensors[name] = _source(name, file, tensor, config)
    config = _resolve_head(config, tied_by_config, tensors, path)
    headers = (np.frombuffer(config_bytes, np.uint8), *(file.header for file in files))
    return Directory(config, tensors, headers)


def _open_files(path: Path) -> list[SafetensorsFile]:
    if (path / SINGLE).exists():
        return [read_safetensors(path / SINGLE)]
    if not (path / INDEX).exists():
        raise CheckpointError(f"{path}: has neither {SINGLE} nor {INDEX}; weights in other formats cannot be loaded")
    document, _ = read_json_file(path / INDEX)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path / INDEX}: weight_map must be an object of tensor and file names")
    for name, shard in weight_map.items():
        # A shard lies beside its index: a name that leads elsewhere is not followed.
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(f"{path / INDEX}: tensor {name!r}: {str(shard)[:80]!r} is no safetensors file name")
    files = [read_safetensors(path / shard) for shard in sorted(set(weight_map.values()))]
    _check_index(path / INDEX, weight_map, files)
    return files


def _check_index(index: Path, weight_map: dict[str, str], files: list[SafetensorsFile]) -> None:
    """Every tensor in the one shard that the index says."""
    found: dict[str, str] = {}
    for file in files:
        for name in file.tensors:
            if name in found:
                raise CheckpointError(f"{file.path}: tensor {name!r}: is in {found[name]}, too")
            if weight_map.get(name) != file.path.name:
                raise CheckpointError(f"{file.path}: tensor {name!r}: {index.name} says {weight_map.get(name)}")
            found[name] = file.path.name
    for name, shard in weight_map.items():
        if name not in found:
            raise CheckpointError(f"{index.parent / shard}: tensor {name!r}: is missing, {index.name} says it is here")


def _refuse_vision(path: Path, stored: dict[str, tuple[SafetensorsFile, StoredTensor]]) -> None:
    for name in stored:
        if any(part in name for part in _VISION_PARTS):
            raise CheckpointError(
                f"{path}: tensor {name!r}: belongs to an image encoder, which is not supported; "
                "use a text-only version of the model (architecture Gemma3ForCausalLM)"
            )


def _canonical(name: str) -> str:
    for prefix in ("language_model.model.", "model.language_model.", "language_model.", "model."):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def _source(name: str, file: SafetensorsFile, tensor: StoredTensor, config: ModelConfig) -> TensorSource:
    if tensor.dtype not in _WEIGHT_DTYPES:
        raise CheckpointError(
            f"{file.path}: tensor {tensor.name!r}: is {tensor.dtype}, weights must be {', '.join(_WEIGHT_DTYPES)}"
        )
    if not tensor.shape:
        raise CheckpointError(f"{file.path}: tensor {tensor.name!r}: has no dimension, a weight has at least 1")
    # Gemma's norms multiply by 1 + weight.
    offset = 1.0 if config.family == "gemma3" and name.endswith("norm.weight") else 0.0
    return TensorSource(name, tensor.shape, tensor.dtype, tensor.raw, None, offset)


def _resolve_head(
    config: ModelConfig, tied_by_config: bool | None, tensors: dict[str, TensorSource], path: Path
) -> ModelConfig:
    """Decides whether the output head is the embedding, and removes a head that repeats it.

    `tied_by_config` is None where the configuration says nothing: then a model without a head of its own is
    tied.
    """
    head = tensors.get("lm_head.weight")
    embedding = tensors.get("embed_tokens.weight")
    if head is None:
        return replace(config, tie_word_embeddings=tied_by_config is not False)
    if not tied_by_config:
        return replace(config, tie_word_embeddings=False)
    if embedding is None or head.kind != embedding.kind or not np.array_equal(head.raw, embedding.raw):
        raise CheckpointError(
            f"{path}: tensor 'lm_head.weight': differs from the embedding, but config.json says tie_word_embeddings"
        )
    del tensors["lm_head.weight"]
    return replace(config, tie_word_embeddings=True)
