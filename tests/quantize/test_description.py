"""A GGUF file's metadata says the same as the configuration that it was made of, or is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_directory import config_of

from octavo.loaders.gguf_writer import NewTensor, decoded_metadata, scalar
from octavo.loaders.hf_config import hf_model_config
from octavo.models.model_config import ModelConfig
from octavo.models.registry import RECIPES
from octavo.quantize.description import check_description, model_metadata, model_tensors

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 128}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": YARN,
    "yarn, other betas": YARN | {"beta_fast": 24.0, "beta_slow": 2.0},
    "yarn, attention factor": YARN | {"attention_factor": 0.7},
    "yarn, mscale": YARN | {"mscale": 0.707, "mscale_all_dim": 0.5},
    "llama3": LLAMA3,
}


def _config(family: str, **changes: Any) -> ModelConfig:
    config, tied = hf_model_config(config_of(family, **changes), {}, Path("config.json"))
    return replace(config, tie_word_embeddings=bool(tied))


def _check(config: ModelConfig) -> None:
    tensors = [*model_tensors(config), NewTensor("token_embd.weight", (config.vocab_size, 64), "Q8_0", list)]
    if not config.tie_word_embeddings:
        tensors.append(NewTensor("output.weight", (config.vocab_size, 64), "Q8_0", list))
    if config.attention_bias:
        tensors.append(NewTensor("blk.0.attn_q.bias", (64,), "F32", list))
    check_description(config, model_metadata(config, "a model"), tensors)


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_every_family_is_described(family: str) -> None:
    _check(_config(family))


@pytest.mark.parametrize("rope", sorted(ROPES))
def test_every_rope_is_described(rope: str) -> None:
    _check(_config("llama", rope_scaling=ROPES[rope]))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gemma3", {"sliding_window_pattern": 2, "layer_types": None}),
        ("gemma3", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
        ("mistral", {"sliding_window": None}),
        ("llama", {"attention_bias": True}),
    ],
)
def test_windows_and_biases_are_described(family: str, changes: dict[str, Any]) -> None:
    if changes.get("attention_bias"):
        with pytest.raises(ValueError, match="attention_out_bias"):  # no tensor of the list says so
            _check(_config(family, **changes))
    else:
        _check(_config(family, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act is 'gelu_pytorch_tanh'"),
        ({"rope_scaling": YARN | {"truncate": False}}, "rope_scaling is"),
    ],
)
def test_what_a_file_cannot_say_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _check(_config("llama", **changes))


def test_a_wrong_description_is_found() -> None:
    config = _config("llama")
    metadata = model_metadata(config, "a model") | {"llama.rope.freq_base": scalar("f32", 9999.0)}
    embedding = NewTensor("token_embd.weight", (config.vocab_size, 64), "Q8_0", list)
    with pytest.raises(ValueError, match="rope_scaling"):
        check_description(config, metadata, [embedding])


def test_names_and_types_are_general_keys() -> None:
    keys = decoded_metadata(model_metadata(_config("mistral"), "small"))
    assert (keys["general.architecture"], keys["general.name"], keys["general.type"]) == ("llama", "small", "model")
