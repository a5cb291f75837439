"""GGUF metadata -> ModelConfig, for the architectures llama, qwen2, qwen3 and gemma3."""

from __future__ import annotations

from math import isfinite, log
from typing import Any, Final, cast

import numpy as np

from octavo.loaders.config_checks import MAX_LAYERS, check_config, is_finite_number, shown, windows
from octavo.loaders.gguf import GgufFile
from octavo.loaders.gguf_metadata import StringArray, Value
from octavo.loaders.rope_scaling import normalize_rope
from octavo.loaders.tensor_source import CheckpointError
from octavo.models.model_config import ModelConfig

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3", "gemma3")
_LAYERS_OF_GEMMA3_27B: Final = 62
_GEMMA3_PERIOD: Final = 6
_NO_TOKEN: Final = (1 << 32) - 1  # how some converters write "none"

# Keys that change what a model computes, and that no recipe knows: they must be absent or 0.
_UNSUPPORTED: Final = (
    "expert_count",
    "expert_used_count",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.logit_softcapping",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "rope.scaling.yarn_log_multiplier",
    "use_parallel_residual",
)


class _Keys:
    """The typed keys of one file's metadata; each error names file, key, value and limit."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture

    def fail(self, key: str, why: str) -> CheckpointError:
        return CheckpointError(f"{self._file.path}: metadata key {key!r}: {why}")

    def raw(self, key: str) -> Value | None:
        """The value of <architecture>.<key>."""
        return self._file.metadata.get(f"{self._architecture}.{key}")

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer that may also be given per layer, as long as all layers have the same."""
        value = self.raw(key)
        name = f"{self._architecture}.{key}"
        if value is None:
            if default is None:
                raise self.fail(name, "is missing")
            return default
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
            if (value != value[0]).any():
                raise self.fail(name, "differs from layer to layer, which is not supported")
            return int(value[0])
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(name, f"is {shown(value)}, it must be an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.raw(key)
        name = f"{self._architecture}.{key}"
        if value is None:
            if default is None:
                raise self.fail(name, "is missing")
            return default
        if not is_finite_number(value):
            raise self.fail(name, f"is {shown(value)}, it must be a finite number")
        return float(cast(float, value))

    def token(self, key: str) -> int | None:
        """A token id under tokenizer.ggml, if it is there."""
        value = self._file.metadata.get(f"tokenizer.ggml.{key}")
        if value is None or (isinstance(value, int) and value == _NO_TOKEN):
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(f"tokenizer.ggml.{key}", f"is {shown(value)}, it must be an integer")
        return value


def gguf_model_config(file: GgufFile) -> ModelConfig:
    """The configuration. Raises CheckpointError on a key that is missing, malformed or not supported."""
    architecture = _architecture(file)
    keys = _Keys(file, architecture)
    for key in _UNSUPPORTED:
        value = keys.raw(key)
        if value is not None and not (isinstance(value, int | float) and value == 0):
            raise keys.fail(f"{architecture}.{key}", f"is {shown(value)}, which is not supported")
    if (causal := keys.raw("attention.causal")) is not None and causal is not True:
        raise keys.fail(f"{architecture}.attention.causal", "is not true, only causal models are supported")
    heads = keys.integer("attention.head_count")
    hidden = keys.integer("embedding_length")
    layers = keys.integer("block_count")
    if not 1 <= heads <= hidden or not 1 <= layers <= MAX_LAYERS:
        raise CheckpointError(
            f"{file.path}: {layers} layers, {heads} heads and an embedding length of {hidden} do not fit"
        )
    head_dim = _head_dim(keys, architecture, hidden, heads)
    window, layer_windows = _layer_windows(keys, architecture, layers)
    eos = tuple(dict.fromkeys(t for t in map(keys.token, ("eos_token_id", "eot_token_id")) if t is not None))
    gemma = architecture == "gemma3"
    config = ModelConfig(
        family="mistral" if architecture == "llama" and window is not None else architecture,
        vocab_size=_vocab_size(file),
        hidden_size=hidden,
        intermediate_size=keys.integer("feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=keys.integer("context_length"),
        rope_theta=keys.number("rope.freq_base", 1_000_000.0 if gemma else 10_000.0),
        rope_scaling=_rope_scaling(file, keys, head_dim),
        hidden_act="gelu_pytorch_tanh" if gemma else "silu",
        tie_word_embeddings="output.weight" not in file.tensors,
        attention_bias=architecture == "qwen2" or "blk.0.attn_q.bias" in file.tensors,
        attention_out_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        sliding_window=window,
        layer_windows=layer_windows,
        rope_local_theta=keys.number("rope.freq_base_swa", 10_000.0) if gemma else None,
        query_pre_attn_scalar=_attention_scalar(keys, architecture, layers, hidden, heads, head_dim),
        bos_token_id=keys.token("bos_token_id"),
        eos_token_ids=eos,
    )
    return check_config(config, file.path)


def _architecture(file: GgufFile) -> str:
    _expect(file, "general.architecture", None, ARCHITECTURES)
    _expect(file, "general.type", "model", ("model",))
    _expect(file, "split.count", 1, (0, 1))  # parts are joined by llama-gguf-split --merge
    return str(file.metadata["general.architecture"])


def _expect(file: GgufFile, key: str, default: str | int | None, allowed: tuple[str | int, ...]) -> None:
    value = file.metadata.get(key, default)
    if not isinstance(value, str | int) or value not in allowed:
        raise CheckpointError(
            f"{file.path}: metadata key {key!r}: is {shown(value)}, supported: {', '.join(map(str, allowed))}"
        )


def _vocab_size(file: GgufFile) -> int:
    """Rows of the embedding, which may be more than the tokenizer has tokens, but not fewer."""
    tensor = file.tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        problem = "is missing" if tensor is None else f"has the shape {tensor.shape}, it must be a matrix"
        raise CheckpointError(f"{file.path}: tensor 'token_embd.weight' {problem}")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) > tensor.shape[0]:
        raise CheckpointError(
            f"{file.path}: metadata key 'tokenizer.ggml.tokens': has {len(tokens)} tokens, "
            f"the embedding only {tensor.shape[0]} rows"
        )
    return tensor.shape[0]


def _head_dim(keys: _Keys, architecture: str, hidden: int, heads: int) -> int:
    if keys.raw("attention.key_length") is None and hidden % heads:
        raise keys.fail(
            f"{architecture}.embedding_length",
            f"is {hidden}, it must be a multiple of the {heads} attention heads",
        )
    head_dim = keys.integer("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (value := keys.integer(key, head_dim)) != head_dim:
            raise keys.fail(f"{architecture}.{key}", f"is {value}, only the head dimension {head_dim} is supported")
    return head_dim


def _attention_scalar(
    keys: _Keys, architecture: str, layers: int, hidden: int, heads: int, head_dim: int
) -> float | None:
    """The scalar that the attention scale is the inverse root of; None for head_dim."""
    scale = keys.number("attention.scale", 0.0)
    if scale:
        if not 1e-6 < scale < 1e6:
            raise keys.fail(f"{architecture}.attention.scale", f"is {scale}, it must be from 1e-6 to 1e6")
        return scale**-2
    # The format has no key for it: Gemma 3 scales by its head dimension, but for the 27B model.
    if architecture == "gemma3":
        return hidden / heads if layers == _LAYERS_OF_GEMMA3_27B else float(head_dim)
    return None


def _layer_windows(keys: _Keys, architecture: str, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    window = keys.integer("attention.sliding_window", 0)
    if not window:
        return None, ()
    pattern = keys.raw("attention.sliding_window_pattern")
    name = f"{architecture}.attention.sliding_window_pattern"
    if isinstance(pattern, np.ndarray) and pattern.dtype.kind in "biu":
        if len(pattern) < layers:
            raise keys.fail(name, f"has {len(pattern)} elements for {layers} layers")
        return windows(window, [bool(flag) for flag in pattern[:layers]])
    if pattern is None and architecture != "gemma3":
        return windows(window, [True] * layers)
    period = keys.integer("attention.sliding_window_pattern", _GEMMA3_PERIOD)
    if period < 1:
        raise keys.fail(name, f"is {period}, it must be at least 1")
    return windows(window, [(layer + 1) % period != 0 for layer in range(layers)])


def _rope_scaling(file: GgufFile, keys: _Keys, head_dim: int) -> dict[str, Any] | None:
    where = f"{file.path}: metadata key rope.scaling"
    rope_type = keys.raw("rope.scaling.type")
    if rope_type is not None and not isinstance(rope_type, str):
        raise CheckpointError(f"{where}.type: is {shown(rope_type)}, it must be a string")
    linear = keys.number("rope.scale_linear", 1.0)
    factor = keys.number("rope.scaling.factor", linear)
    if rope_type is None:
        rope_type = "linear" if factor not in (0.0, 1.0) else "none"
    parameters: dict[str, Any] = {"rope_type": rope_type, "factor": factor}
    if rope_type == "none" or (rope_type == "linear" and factor in (0.0, 1.0)):
        parameters = {"rope_type": "default"}
    elif rope_type == "yarn":
        parameters |= _yarn(keys, factor)
    scaling = normalize_rope(parameters, where)
    factors = _rope_factors(file, head_dim)
    if factors is None:
        return scaling
    if scaling is not None:
        raise CheckpointError(f"{where}: type {rope_type!r} cannot be combined with the tensor 'rope_freqs.weight'")
    return {"rope_type": "llama3_factors", "factors": factors}


def _yarn(keys: _Keys, factor: float) -> dict[str, Any]:
    """Yarn's own keys. The file's attn_factor multiplies yarn's usual attention factor, 1 + ln(factor) /
    10."""
    parameters: dict[str, Any] = {}
    if keys.raw("rope.scaling.original_context_length") is not None:
        parameters["original_max_position_embeddings"] = keys.integer("rope.scaling.original_context_length")
    multiplier = keys.number("rope.scaling.attn_factor", keys.number("rope.scaling.yarn_attn_factor", 1.0))
    if multiplier != 1.0 and factor > 0:
        parameters["attention_factor"] = multiplier * (1.0 + 0.1 * log(factor))
    for key in ("beta_fast", "beta_slow"):
        if keys.raw(f"rope.scaling.yarn_{key}") is not None:
            parameters[key] = keys.number(f"rope.scaling.yarn_{key}")
    if keys.number("rope.scaling.yarn_ext_factor", 1.0) not in (1.0, -1.0):
        raise keys.fail("rope.scaling.yarn_ext_factor", "only 1 is supported")
    return parameters


def _rope_factors(file: GgufFile, head_dim: int) -> list[float] | None:
    """What the inverse frequencies are divided by (Llama 3.1 and later); None where the file has no such
    tensor."""
    tensor = file.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    where = f"{file.path}: tensor 'rope_freqs.weight'"
    if tensor.kind != "F32" or tensor.shape != (head_dim // 2,):
        raise CheckpointError(f"{where}: is {tensor.kind} {tensor.shape}, it must be F32 ({head_dim // 2},)")
    factors: list[float] = tensor.raw.view("<f4").tolist()
    if not all(isfinite(factor) and factor > 0 for factor in factors):
        raise CheckpointError(f"{where}: holds a value that is not positive and finite")
    return None if all(factor == 1.0 for factor in factors) else factors
