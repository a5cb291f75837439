from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from octavo.loaders.checkpoint import open_checkpoint

pytestmark = pytest.mark.real_model
Find = Callable[[str], Path]

# Begin of the SHA-256 of the float32 values that the `gguf` package gives; rows that no rope reorders.
GOLDEN = {
    "smollm2": {
        "layers.0.self_attn.v_proj.weight": "83be4f4e7c7bb8ef8ec989555865fbc8",
        "layers.29.mlp.down_proj.weight": "c19605745425a11e704e305ce3d27b63",
    },
    "gemma3-270m": {
        "layers.0.self_attn.k_proj.weight": "e9148680cf79c2265aa182d501323da9",
        "layers.0.self_attn.o_proj.weight": "84421b360695121d4fa8c5b47aa4b972",
        "layers.0.mlp.down_proj.weight": "b718ca6bf05ad89435100bb9da1f6a63",
        "layers.17.post_feedforward_layernorm.weight": "4381196a7b469260d72c985ed3550da2",
    },
}
KINDS = {
    "smollm2": {"Q4_1": 210, "F32": 61, "Q8_0": 1},
    "gemma3-270m": {"F32": 109, "Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9},
}


@pytest.mark.parametrize("alias", sorted(GOLDEN))
def test_values_equal_the_reference(real_model: Find, alias: str) -> None:
    tensors = open_checkpoint(real_model(alias)).tensors
    assert Counter(source.kind for source in tensors.values()) == KINDS[alias]
    for name, digest in GOLDEN[alias].items():
        assert sha256(tensors[name].dequantize().tobytes()).hexdigest().startswith(digest), name


def test_smollm2_configuration(real_model: Find) -> None:
    checkpoint = open_checkpoint(real_model("smollm2"))
    config = checkpoint.config
    assert (config.family, config.vocab_size, config.num_hidden_layers, config.head_dim) == (
        "llama",
        49152,
        30,
        64,
    )
    assert (config.num_attention_heads, config.num_key_value_heads, config.rope_theta) == (9, 3, 100000.0)
    assert config.tie_word_embeddings and config.rope_scaling is None and config.eos_token_ids == (2,)
    embedding = checkpoint.tensors["embed_tokens.weight"]
    assert np.array_equal(embedding.dequantize_rows(40000, 40002), embedding.dequantize()[40000:40002])


def test_gemma3_configuration(real_model: Find) -> None:
    config = open_checkpoint(real_model("gemma3-270m")).config
    assert (config.family, config.vocab_size, config.num_hidden_layers, config.head_dim) == (
        "gemma3",
        262144,
        18,
        256,
    )
    assert config.layer_windows == ((True,) * 5 + (False,)) * 3 and config.sliding_window == 512
    assert (config.rope_theta, config.rope_local_theta, config.query_pre_attn_scalar) == (1e6, 1e4, 256.0)
