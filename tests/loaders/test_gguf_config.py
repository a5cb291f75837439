from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_files import f32, gguf_bytes, llama_keys, llama_tensors

from octavo.loaders.gguf import read_gguf
from octavo.loaders.gguf_config import gguf_model_config
from octavo.loaders.tensor_source import CheckpointError
from octavo.models.model_config import ModelConfig


def _config(tmp_path: Path, keys: dict[str, tuple[str, Any]], tensors: dict[str, Any] | None = None) -> ModelConfig:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(keys, llama_tensors() if tensors is None else tensors))
    return gguf_model_config(read_gguf(path))


def _as(architecture: str, **extra: tuple[str, Any]) -> dict[str, tuple[str, Any]]:
    """The tiny llama's keys under another architecture; keywords are that one's own keys."""
    keys = {key.replace("llama.", architecture + ".", 1): value for key, value in llama_keys().items()}
    keys["general.architecture"] = ("str", architecture)
    return keys | {f"{architecture}.{key.replace('__', '.')}": value for key, value in extra.items()}


def test_llama(tmp_path: Path) -> None:
    assert _config(tmp_path, llama_keys()) == ModelConfig(
        family="llama",
        vocab_size=6,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        rms_norm_eps=float(np.float32(1e-5)),
        max_position_embeddings=64,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        eos_token_ids=(2,),
    )


def test_an_output_tensor_means_not_tied_and_biases_are_seen(tmp_path: Path) -> None:
    biases = {"blk.0.attn_q.bias": f32((8,)), "blk.0.attn_output.bias": f32((8,))}
    config = _config(tmp_path, llama_keys(), llama_tensors() | biases | {"output.weight": f32((6, 8))})
    assert not config.tie_word_embeddings
    assert (config.attention_bias, config.attention_out_bias, config.mlp_bias) == (True, True, False)


def test_a_llama_with_a_window_is_a_mistral(tmp_path: Path) -> None:
    config = _config(tmp_path, _as("llama", attention__sliding_window=("u32", 32)))
    assert (config.family, config.sliding_window, config.layer_windows) == ("mistral", 32, (True, True))


@pytest.mark.parametrize(("architecture", "bias"), [("qwen2", True), ("qwen3", False)])
def test_qwen(tmp_path: Path, architecture: str, bias: bool) -> None:
    config = _config(tmp_path, _as(architecture, attention__key_length=("u32", 16)))
    assert (config.family, config.head_dim, config.attention_bias) == (architecture, 16, bias)


def test_gemma3_has_windows_two_bases_and_its_own_scale(tmp_path: Path) -> None:
    keys = _as("gemma3", block_count=("u32", 7), attention__sliding_window=("u32", 512))
    del keys["gemma3.rope.freq_base"]
    config = _config(tmp_path, keys)
    assert config.layer_windows == (True,) * 5 + (False, True)
    assert (config.sliding_window, config.rope_theta, config.rope_local_theta) == (512, 1e6, 1e4)
    assert (config.query_pre_attn_scalar, config.hidden_act) == (4.0, "gelu_pytorch_tanh")


@pytest.mark.parametrize("pattern", [("u32", 2), ("arr", ("bool", [True, False, True]))])
def test_gemma3_reads_the_pattern_of_windows(tmp_path: Path, pattern: tuple[str, Any]) -> None:
    keys = _as(
        "gemma3",
        block_count=("u32", 3),
        attention__sliding_window=("u32", 512),
        attention__sliding_window_pattern=pattern,
    )
    assert _config(tmp_path, keys).layer_windows == (True, False, True)


def test_the_largest_gemma3_scales_by_width_over_heads(tmp_path: Path) -> None:
    keys = _as("gemma3", block_count=("u32", 62), attention__key_length=("u32", 16))
    assert _config(tmp_path, keys).query_pre_attn_scalar == 4.0  # 8 / 2


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"type": ("str", "none"), "factor": ("f32", 4.0)}, None),
        ({"type": ("str", "linear"), "factor": ("f32", 4.0)}, {"rope_type": "linear", "factor": 4.0}),
        ({"factor": ("f32", 2.0)}, {"rope_type": "linear", "factor": 2.0}),
        (
            {"type": ("str", "yarn"), "factor": ("f32", 4.0), "original_context_length": ("u32", 16)},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        ),
    ],
)
def test_rope_scaling(tmp_path: Path, keys: dict[str, Any], scaling: dict[str, Any] | None) -> None:
    scaled = {f"rope__scaling__{key}": value for key, value in keys.items()}
    assert _config(tmp_path, _as("llama", **scaled)).rope_scaling == scaling


def test_rope_factors_come_from_their_tensor(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": f32((2,), start=1.0)}
    config = _config(tmp_path, llama_keys(), llama_tensors() | factors)
    assert config.rope_scaling == {"rope_type": "llama3_factors", "factors": [1.0, 2.0]}
    ones = {"rope_freqs.weight": ("F32", (2,), np.ones(2, "<f4").tobytes())}
    assert _config(tmp_path, llama_keys(), llama_tensors() | ones).rope_scaling is None


BAD_FACTORS = {
    "of another length": f32((3,), 1.0),
    "not positive": f32((2,)),
    "of another shape": f32((1, 2), 1.0),
}


@pytest.mark.parametrize("case", sorted(BAD_FACTORS))
def test_bad_rope_factors_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor 'rope_freqs\.weight'"):
        _config(tmp_path, llama_keys(), llama_tensors() | {"rope_freqs.weight": BAD_FACTORS[case]})


REFUSED: dict[str, tuple[dict[str, tuple[str, Any]], str]] = {
    "unknown architecture": ({"general.architecture": ("str", "mamba")}, "is 'mamba', supported: llama"),
    "architecture of a wrong type": (
        {"general.architecture": ("arr", ("u8", [1, 2]))},
        "general.architecture",
    ),
    "an adapter": ({"general.type": ("str", "adapter")}, "'general.type': is 'adapter'"),
    "a split file": ({"split.count": ("u16", 3)}, "'split.count': is 3"),
    "mixture of experts": (
        {"llama.expert_count": ("u32", 8)},
        "'llama.expert_count': is 8, which is not supported",
    ),
    "soft-capping": ({"llama.final_logit_softcapping": ("f32", 30.0)}, "final_logit_softcapping"),
    "not causal": ({"llama.attention.causal": ("bool", False)}, "attention.causal"),
    "heads that do not divide": ({"llama.attention.head_count": ("u32", 3)}, "must be a multiple of the 3"),
    "KV heads that do not divide": ({"llama.attention.head_count_kv": ("u32", 3)}, "num_key_value_heads 3"),
    "no KV heads": ({"llama.attention.head_count_kv": ("u32", 0)}, "num_key_value_heads is 0"),
    "no heads": ({"llama.attention.head_count": ("u32", 0)}, "0 heads"),
    "2^32 - 1 layers": ({"llama.block_count": ("u32", (1 << 32) - 1)}, "4294967295 layers"),
    "layers of a wrong type": (
        {"llama.block_count": ("str", "2")},
        "'llama.block_count': is '2', it must be an int",
    ),
    "layers that differ": (
        {"llama.attention.head_count_kv": ("arr", ("u32", [1, 2]))},
        "'llama.attention.head_count_kv': differs from layer to layer",
    ),
    "an epsilon that is no number": (
        {"llama.attention.layer_norm_rms_epsilon": ("f32", float("nan"))},
        "layer_norm_rms_epsilon': is nan",
    ),
    "a negative rope base": ({"llama.rope.freq_base": ("f32", -1.0)}, "rope_theta is -1.0"),
    "partial rope": ({"llama.rope.dimension_count": ("u32", 2)}, "'llama.rope.dimension_count': is 2"),
    "other value heads": (
        {"llama.attention.value_length": ("u32", 8)},
        "'llama.attention.value_length': is 8",
    ),
    "an odd head": ({"llama.attention.key_length": ("u32", 3)}, "head_dim is 3, it must be even"),
    "unknown rope type": (
        {"llama.rope.scaling.type": ("str", "longrope")},
        "rope type 'longrope' is unknown",
    ),
    "a rope factor of 0": (
        {"llama.rope.scaling.type": ("str", "yarn"), "llama.rope.scaling.factor": ("f32", 0.0)},
        "factor is 0.0, it must be at least 1",
    ),
    "an end token outside": ({"tokenizer.ggml.eos_token_id": ("u32", 6)}, "token id 6 is not within the 6"),
    "more tokens than rows": ({"tokenizer.ggml.tokens": ("arr", ("str", ["x"] * 7))}, "has 7 tokens"),
    "a tiny attention scale": (
        {"llama.attention.scale": ("f64", 1e-300)},
        "'llama.attention.scale': is 1e-300",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_run_is_refused(tmp_path: Path, case: str) -> None:
    keys, message = REFUSED[case]
    with pytest.raises(CheckpointError) as caught:
        _config(tmp_path, llama_keys() | keys)
    assert str(tmp_path / "m.gguf") in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["llama.block_count", "llama.embedding_length", "llama.context_length"])
def test_missing_keys_are_named(tmp_path: Path, key: str) -> None:
    keys = llama_keys()
    del keys[key]
    with pytest.raises(CheckpointError, match=f"key '{key}': is missing"):
        _config(tmp_path, keys)


def test_a_missing_embedding_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'token_embd\.weight' is missing"):
        _config(tmp_path, llama_keys(), {"output_norm.weight": f32((8,))})


def test_values_given_per_layer_are_read_where_they_agree(tmp_path: Path) -> None:
    keys = llama_keys() | {"llama.feed_forward_length": ("arr", ("i32", [16, 16]))}
    assert _config(tmp_path, keys) == _config(tmp_path, llama_keys())


def test_a_token_id_of_all_ones_is_none(tmp_path: Path) -> None:
    keys = llama_keys() | {"tokenizer.ggml.bos_token_id": ("u32", (1 << 32) - 1)}
    assert _config(tmp_path, keys) == replace(_config(tmp_path, llama_keys()), bos_token_id=None)
