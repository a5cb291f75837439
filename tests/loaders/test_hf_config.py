from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loader_files import hf_config

from octavo.loaders.hf_config import hf_model_config
from octavo.loaders.rope_scaling import normalize_rope
from octavo.loaders.tensor_source import CheckpointError
from octavo.models.model_config import ModelConfig

WHERE = Path("somewhere/config.json")
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _config(generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    return hf_model_config(hf_config(**changes), generation or {}, WHERE)[0]


def test_llama() -> None:
    config, tied = hf_model_config(hf_config(), {}, WHERE)
    assert tied is True
    assert config == ModelConfig(
        family="llama",
        vocab_size=6,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        rms_norm_eps=1e-5,
        max_position_embeddings=64,
        rope_theta=10000.0,
        bos_token_id=1,
        eos_token_ids=(2,),
    )


def test_llama_biases() -> None:
    config = _config(attention_bias=True, mlp_bias=True)
    assert (config.attention_bias, config.attention_out_bias, config.mlp_bias) == (True, True, True)


def test_heads_default_to_the_query_heads() -> None:
    assert _config(num_key_value_heads=None).num_key_value_heads == 2
    document = hf_config()
    del document["num_key_value_heads"]
    assert hf_model_config(document, {}, WHERE)[0].num_key_value_heads == 2


def test_end_tokens_of_both_files_are_joined() -> None:
    config = _config({"eos_token_id": [2, 5], "bos_token_id": 1}, eos_token_id=[3, 2])
    assert config.eos_token_ids == (3, 2, 5)
    assert _config(eos_token_id=None, bos_token_id=None).eos_token_ids == ()


@pytest.mark.parametrize(
    ("changes", "window", "layers"),
    [
        ({"sliding_window": 32}, 32, (True, True)),
        ({"sliding_window": None}, None, ()),
        ({}, 4096, (True, True)),
    ],
)
def test_every_layer_of_a_mistral_uses_its_window(
    changes: dict[str, Any], window: int | None, layers: tuple[bool, ...]
) -> None:
    config = _config(architectures=["MistralForCausalLM"], **changes)
    assert (config.family, config.sliding_window, config.layer_windows) == ("mistral", window, layers)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"use_sliding_window": False, "sliding_window": 32}, ()),
        ({"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}, (False, True)),
        ({"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2}, ()),
        ({"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}, (True, False)),
        ({"use_sliding_window": False, "layer_types": ["full_attention", "full_attention"]}, ()),
    ],
)
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_qwen_windows(family: str, changes: dict[str, Any], layers: tuple[bool, ...]) -> None:
    config = _config(architectures=[f"{family.capitalize()}ForCausalLM"], **changes)
    assert config.layer_windows == layers
    assert (config.sliding_window is None) == (not layers)


def test_qwen_biases_and_head_dimensions() -> None:
    second = _config(architectures=["Qwen2ForCausalLM"])
    third = _config(architectures=["Qwen3ForCausalLM"])
    assert (second.attention_bias, second.attention_out_bias, second.head_dim) == (True, False, 4)
    assert (third.attention_bias, third.attention_out_bias, third.head_dim) == (False, False, 128)


def _gemma(**changes: Any) -> ModelConfig:
    return _config(architectures=["Gemma3ForCausalLM"], **changes)


def test_gemma3_defaults() -> None:
    config = _gemma(num_hidden_layers=7, rope_theta=1e6)
    assert config.layer_windows == (True,) * 5 + (False, True)
    assert (config.head_dim, config.query_pre_attn_scalar, config.sliding_window) == (256, 256.0, 4096)
    assert (config.rope_theta, config.rope_local_theta, config.rope_scaling) == (1e6, 1e4, None)
    assert config.hidden_act == "gelu_pytorch_tanh"


def test_gemma3_is_tied_where_nothing_is_said() -> None:
    document = hf_config(architectures=["Gemma3ForCausalLM"], tie_word_embeddings=None)
    assert hf_model_config(document, {}, WHERE)[1] is True


def test_gemma3_old_and_new_spellings_agree() -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    old = _gemma(rope_theta=1e6, rope_local_base_freq=5000.0, rope_scaling=linear, sliding_window_pattern=2)
    new = _gemma(
        rope_theta=None,
        rope_parameters={
            "full_attention": {**linear, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
        },
        layer_types=["sliding_attention", "full_attention"],
    )
    assert old == new
    assert (new.rope_theta, new.rope_local_theta, new.rope_scaling) == (1e6, 5000.0, linear)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {**LLAMA3, "type": "llama3"}},
        {"rope_theta": None, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
    ],
)
def test_rope_spellings_agree(changes: dict[str, Any]) -> None:
    config = _config(**changes)
    assert (config.rope_theta, config.rope_scaling) == (5e5, LLAMA3)


def test_yarn_without_an_original_length_gets_that_of_the_model() -> None:
    scaling = _config(rope_scaling={"type": "yarn", "factor": 4.0}).rope_scaling
    assert scaling == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("parameters", [None, {}, {"rope_type": "default"}, {"type": "default", "rope_theta": 1e4}])
def test_plain_rope_is_none(parameters: dict[str, Any] | None) -> None:
    assert normalize_rope(parameters, "x") is None


BAD_ROPE: dict[str, tuple[Any, str]] = {
    "unknown type": ({"rope_type": "longrope", "factor": 2}, "rope type 'longrope' is unknown"),
    "type of a wrong type": ({"rope_type": ["yarn"]}, "rope type ['yarn'] is unknown"),
    "no factor": ({"rope_type": "linear"}, "rope type linear needs factor"),
    "a factor below 1": ({"rope_type": "linear", "factor": 0.5}, "factor is 0.5, it must be at least 1"),
    "a factor that is no number": ({"rope_type": "linear", "factor": "2"}, "factor is '2'"),
    "an infinite factor": ({"rope_type": "linear", "factor": float("inf")}, "factor is inf"),
    "a factor beyond the floats": ({"rope_type": "linear", "factor": 10**400}, "factor is 1000"),
    "an unknown key": (
        {"rope_type": "linear", "factor": 2, "mrope_section": [1]},
        "unknown keys mrope_section",
    ),
    "scaling without a type": ({"factor": 2}, "unknown keys factor"),
    "part of a head": ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "crossed bounds": ({**LLAMA3, "low_freq_factor": 8.0}, "low_freq_factor 8.0 is not below"),
    "no object": ("linear", "is 'linear', it must be an object"),
    "a float length": ({**LLAMA3, "original_max_position_embeddings": 1.5}, "1.5, it must be an integer"),
    "truncate as a number": ({"rope_type": "yarn", "factor": 2, "truncate": 1}, "truncate is 1"),
}


@pytest.mark.parametrize("case", sorted(BAD_ROPE))
def test_bad_rope_scaling_is_refused(case: str) -> None:
    parameters, message = BAD_ROPE[case]
    with pytest.raises(CheckpointError) as caught:
        _config(rope_scaling=parameters)
    assert str(WHERE) in str(caught.value)
    assert message in str(caught.value)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architectures": ["OPTForCausalLM"]}, "supported: LlamaForCausalLM"),
    "a classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    "no architecture": ({"architectures": None, "model_type": "gpt2"}, "model_type 'gpt2'"),
    "architectures of a wrong type": ({"architectures": {"a": 1}}, "architectures is {'a': 1}"),
    "quantisation": (
        {"quantization_config": {"quant_method": "awq"}},
        "quantization_config: is {'quant_method'",
    ),
    "soft-capping": (
        {"final_logit_softcapping": 30.0},
        "final_logit_softcapping: is 30.0, which is not supported",
    ),
    "experts": ({"num_local_experts": 8}, "num_local_experts: is 8"),
    "both directions": ({"use_bidirectional_attention": True}, "use_bidirectional_attention: is True"),
    "heads that do not divide": (
        {"num_attention_heads": 3},
        "hidden_size: is 8, it must be a multiple of the 3",
    ),
    "KV heads that do not divide": ({"num_key_value_heads": 3}, "num_attention_heads 2 is not a multiple"),
    "no heads": ({"num_attention_heads": 0}, "0 attention heads"),
    "10^9 layers": (
        {"num_hidden_layers": 10**9},
        "num_hidden_layers: is 1000000000, it must be from 1 to 4096",
    ),
    "a layer count that is a string": (
        {"num_hidden_layers": "2"},
        "num_hidden_layers: is '2', it must be an integer",
    ),
    "a layer count that is a bool": ({"num_hidden_layers": True}, "num_hidden_layers: is True"),
    "a negative size": ({"intermediate_size": -1}, "intermediate_size is -1, it must be from 1"),
    "a huge size": ({"vocab_size": 1 << 60}, f"vocab_size is {1 << 60}, it must be from 1 to"),
    "an epsilon of 0": ({"rms_norm_eps": 0}, "rms_norm_eps is 0.0, it must be a positive number"),
    "an infinite base": ({"rope_theta": float("inf")}, "rope_theta: is inf, it must be a finite number"),
    "an unknown activation": ({"hidden_act": "relu2"}, "hidden_act: is 'relu2', supported: silu"),
    "an end token outside": ({"eos_token_id": 6}, "special token id 6 is not within the 6 tokens"),
    "an end token that is a string": ({"eos_token_id": "</s>"}, "eos_token_id: is '</s>'"),
    "a tie that is no bool": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: is 'yes'"),
    "rope twice": (
        {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"type": "linear", "factor": 4}},
        "rope_scaling: differs from rope_parameters",
    ),
    "layer types of another number": (
        {
            "architectures": ["Qwen3ForCausalLM"],
            "use_sliding_window": True,
            "layer_types": ["full_attention"],
        },
        "layer_types: has 1 elements for 2 layers",
    ),
    "unknown layer types": (
        {"architectures": ["Gemma3ForCausalLM"], "layer_types": ["linear_attention"] * 2},
        "layer_types: is ['linear_attention'",
    ),
    "a window of 0": ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, "sliding_window is 0"),
    "a local rope that is scaled": (
        {
            "architectures": ["Gemma3ForCausalLM"],
            "rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}},
        },
        "rope_parameters.sliding_attention: only Gemma 3",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_run_is_refused(case: str) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(CheckpointError) as caught:
        _config(**changes)
    assert str(WHERE) in str(caught.value)
    assert message in str(caught.value)


WEIRD: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 70,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    [[]],
    {},
    {"a": []},
]
EVERY_KEY = {
    "head_dim": 4,
    "sliding_window": 4,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "layer_types": ["full_attention", "sliding_attention"],
    "sliding_window_pattern": 2,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "rope_parameters": None,
    "rope_local_base_freq": 1e4,
    "query_pre_attn_scalar": 4,
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "hidden_activation": "gelu_pytorch_tanh",
    "text_config": None,
}


@pytest.mark.parametrize("architecture", ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3"])
def test_any_value_anywhere_is_read_or_refused(architecture: str) -> None:
    document = hf_config(**EVERY_KEY, architectures=[f"{architecture}ForCausalLM"])
    for key in document:
        for value in WEIRD:
            for changed in (document | {key: value}, {k: v for k, v in document.items() if k != key}):
                with suppress(CheckpointError):
                    hf_model_config(changed, {}, WHERE)
    for key in ("rope_type", "type", "factor", "rope_theta", "full_attention", "sliding_attention"):
        for value in WEIRD:
            for name in ("rope_scaling", "rope_parameters"):
                with suppress(CheckpointError):
                    hf_model_config(document | {"rope_scaling": None, name: {key: value}}, {}, WHERE)
    for value in WEIRD:
        with suppress(CheckpointError):
            hf_model_config(document, {"eos_token_id": value, "bos_token_id": value}, WHERE)


@pytest.mark.parametrize("architecture", ["Mistral", "Qwen2", "Qwen3"])
def test_layer_types_that_contradict_the_windows_are_refused(architecture: str) -> None:
    with pytest.raises(CheckpointError, match="layer_types"):
        _config(
            architectures=[f"{architecture}ForCausalLM"],
            layer_types=["sliding_attention", "full_attention"],
            use_sliding_window=False,
        )
