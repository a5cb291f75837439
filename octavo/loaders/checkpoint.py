"""A model's weights and configuration, from a GGUF file or a safetensors directory, under one set of names.

Names are those of Hugging Face without the leading "model.": embed_tokens.weight,
layers.0.self_attn.q_proj.weight, norm.weight, lm_head.weight (absent where it is tied to the embedding).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.gguf import GgufFile, read_gguf
from octavo.loaders.gguf_config import gguf_model_config
from octavo.loaders.gguf_names import canonical_name, rotary_row_order
from octavo.loaders.tensor_source import CheckpointError, TensorSource
from octavo.models.model_config import ModelConfig

__all__ = ["Checkpoint", "CheckpointError", "TensorSource", "check_weights", "open_checkpoint"]

_SAMPLE_BYTES = 256
_ROTARY_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened model. Its files stay mapped as long as it, or any tensor of it, lives."""

    path: Path
    config: ModelConfig
    tensors: Mapping[str, TensorSource]
    """by canonical name"""
    tokenizer_source: Mapping[str, Any] | Path
    """GGUF metadata, or the directory"""
    headers: tuple[NDArray[np.uint8], ...] = field(repr=False)
    """what stands before the tensors in each file, and a directory's config.json"""

    def tokenizer_files(self) -> Mapping[str, Any] | Path:
        """What the tokenizer is read from: a GGUF file's metadata, or the path of a directory."""
        return self.tokenizer_source

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal SHA-256 that tells one model from another: over the headers, and a few bytes from the
        middle of every tensor. It does not depend on the path, and does not read the whole file."""
        digest = sha256()
        for header in self.headers:
            digest.update(len(header).to_bytes(8, "little"))
            digest.update(header.data)
        for name in sorted(self.tensors):
            raw = self.tensors[name].raw
            start = max(0, len(raw) // 2 - _SAMPLE_BYTES // 2)
            digest.update(raw[start : start + _SAMPLE_BYTES].data)
        return digest.hexdigest()


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a .gguf file, or a directory with config.json and safetensors files.

    Raises CheckpointError, naming file and tensor or key, where anything about them is missing, malformed,
    or not supported. Whether the tensors are those that the model needs is for `check_weights` to say.
    """
    path = Path(path)
    if path.is_dir():
        # Imported here: a GGUF file, the usual case, starts without the cost of these modules.
        from octavo.loaders.safetensors import open_directory

        directory = open_directory(path)
        return Checkpoint(path, directory.config, directory.tensors, path, directory.headers)
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path}: give the directory that holds it and its config.json")
    file = read_gguf(path)
    config = gguf_model_config(file)
    return Checkpoint(path, config, _gguf_tensors(file, config), file.metadata, (file.header,))


def _gguf_tensors(file: GgufFile, config: ModelConfig) -> dict[str, TensorSource]:
    """Canonical tensors of a GGUF file. One that no recipe could read keeps its own name, for check_weights
    to report."""
    orders: dict[int, NDArray[np.int32]] = {}
    tensors: dict[str, TensorSource] = {}
    for tensor in file.tensors.values():
        if tensor.name == "rope_freqs.weight":  # read into the configuration
            continue
        name = canonical_name(tensor.name, config.family) or tensor.name
        if name in tensors:
            raise CheckpointError(f"{file.path}: tensor {tensor.name!r}: another tensor is {name!r}, too")
        order = None
        rows = tensor.shape[0]
        rotated = config.family in ("llama", "mistral") and any(part in name for part in _ROTARY_PROJECTIONS)
        if rotated and rows % config.head_dim == 0:  # others are mis-shaped: check_weights says so
            if rows not in orders:
                orders[rows] = rotary_row_order(rows // config.head_dim, config.head_dim)
            order = orders[rows]
        tensors[name] = TensorSource(name, tensor.shape, tensor.kind, tensor.raw, order)
    return tensors


def check_weights(weights: Mapping[str, tuple[int, ...]], checkpoint: Checkpoint) -> None:
    """Raises CheckpointError unless the checkpoint has exactly the tensors in `weights` (name -> shape).

    The error names the file and every (up to ten of a sort) missing, left-over and mis-shaped tensor.
    """
    tensors = checkpoint.tensors
    problems = [
        _listed("missing", (name for name in weights if name not in tensors)),
        _listed("left over", (name for name in tensors if name not in weights)),
        _listed(
            "mis-shaped",
            (
                f"{name} is {tensors[name].shape}, must be {tuple(shape)}"
                for name, shape in weights.items()
                if name in tensors and tensors[name].shape != tuple(shape)
            ),
        ),
    ]
    if found := [problem for problem in problems if problem]:
        raise CheckpointError(f"{checkpoint.path}: " + "; ".join(found))


def _listed(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return ""
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    return f"{len(listed)} tensors are {what}: {', '.join(listed[:10])}{more}"
