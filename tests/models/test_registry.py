"""Recipes refuse what they cannot build, and read the weights that their family has."""

import pytest
from support.weights import small_config

from octavo.models.registry import RECIPES, build_program
from octavo.program.buffers import operation_values
from octavo.program.operations import ApplyRope, Embed, PagedAttention, SelectRows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "bert"}, "family is 'bert'; known are gemma3, llama, mistral, qwen2, qwen3"),
        (
            {"num_attention_heads": 9, "num_key_value_heads": 4},
            "num_attention_heads is 9, not a multiple of num_key_value_heads 4",
        ),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type 'longrope' is unknown"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"layer_windows": (True,), "sliding_window": 4}, "layer_windows has 1 entries for 2 layers"),
        ({"layer_windows": (True, False)}, "sliding_window is None"),
        ({"family": "mistral", "sliding_window": 0}, "sliding_window is 0"),
        ({"family": "gemma3", "query_pre_attn_scalar": 0.0}, "query_pre_attn_scalar is 0"),
    ],
)
def test_what_cannot_be_built_is_an_error_with_field_and_value(changes, message):
    with pytest.raises(ValueError, match=message):
        build_program(small_config(**changes))


def suffixes(**changes):
    program = build_program(small_config(**changes))
    return {name.removeprefix("layers.1.") for name in program.weights if name.startswith("layers.1.")}


PLAIN = {
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
}
QK_NORMS = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}
QKV_BIASES = {f"self_attn.{name}_proj.bias" for name in "qkv"}


def test_weights_of_each_family():
    assert suffixes(family="llama") == suffixes(family="mistral") == PLAIN
    assert suffixes(family="llama", attention_bias=True) == PLAIN | QKV_BIASES
    assert suffixes(family="qwen2") == PLAIN | QKV_BIASES
    assert suffixes(family="qwen3") == PLAIN | QK_NORMS
    sandwich = {"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"}
    assert suffixes(family="gemma3") == PLAIN | QK_NORMS | sandwich


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_a_tied_head_is_the_embedding(family):
    tied = build_program(small_config(family=family, tie_word_embeddings=True))
    assert "lm_head.weight" not in tied.weights
    assert tied.operations[-1].weight == tied.operations[0].weight == "embed_tokens.weight"
    assert build_program(small_config(family=family)).weights["lm_head.weight"] == (64, 32)


def test_gemma_turns_windowed_and_full_layers_by_their_own_base():
    config = small_config(
        family="gemma3", layer_windows=(True, False), sliding_window=4, rope_theta=1e6, rope_local_theta=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )  # fmt: skip
    operations = build_program(config).operations
    slowest = [op.rope.inv_freq[0] for op in operations if isinstance(op, ApplyRope)]
    assert slowest == [1.0, 1.0, 0.125, 0.125]
    assert isinstance(operations[0], Embed)
    assert operations[0].scale == pytest.approx(32**0.5)


def test_mistral_has_its_window_in_every_layer():
    program = build_program(small_config(family="mistral", sliding_window=5))
    assert [layer.window for layer in program.kv_layers] == [5, 5]
    assert len(program.kv_groups) == 1


def test_attention_scale_follows_query_pre_attn_scalar():
    program = build_program(small_config(family="gemma3", query_pre_attn_scalar=16.0))
    assert {op.scale for op in program.operations if isinstance(op, PagedAttention)} == {0.25}


def test_context_length():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}
    assert build_program(small_config()).max_model_len == 128
    assert build_program(small_config(rope_scaling=yarn)).max_model_len == 400
    assert build_program(small_config(), max_model_len=1000).max_model_len == 1000
    with pytest.raises(ValueError, match="max_model_len is 0"):
        build_program(small_config(), max_model_len=0)


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_after_the_last_attention_only_wanted_rows_are_computed(family):
    operations = build_program(small_config(family=family)).operations
    last = max(index for index, op in enumerate(operations) if isinstance(op, PagedAttention))
    select, rest = operations[last + 1 : last + 3], operations[last + 3 :]
    assert all(isinstance(op, SelectRows) for op in select)
    assert {value.rows for op in rest for value in operation_values(op).values()} == {"logits"}
