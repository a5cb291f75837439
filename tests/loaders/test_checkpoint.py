from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from loader_files import f32, gguf_bytes, hf_config, hf_tensors, llama_keys, llama_tensors, write_directory

from octavo.loaders.checkpoint import CheckpointError, check_weights, open_checkpoint
from octavo.loaders.gguf_names import canonical_name, rotary_row_order

LAYER_SHAPES = {
    "input_layernorm": (8,),
    "post_attention_layernorm": (8,),
    "self_attn.q_proj": (8, 8),
    "self_attn.k_proj": (4, 8),
    "self_attn.v_proj": (4, 8),
    "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (16, 8),
    "mlp.up_proj": (16, 8),
    "mlp.down_proj": (8, 16),
}
WEIGHTS: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (6, 8), "norm.weight": (8,)}
WEIGHTS |= {f"layers.{i}.{name}.weight": shape for i in range(2) for name, shape in LAYER_SHAPES.items()}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(llama_keys(), llama_tensors()))
    return path


def test_both_formats_give_the_same_names_and_shapes(gguf: Path, tmp_path: Path) -> None:
    from_gguf = open_checkpoint(gguf)
    from_directory = open_checkpoint(write_directory(tmp_path / "hf", hf_config()))
    check_weights(WEIGHTS, from_gguf)
    check_weights(WEIGHTS, from_directory)
    assert from_gguf.config.hidden_size == from_directory.config.hidden_size == 8


def test_the_tokenizer_comes_from_the_metadata_or_the_directory(gguf: Path, tmp_path: Path) -> None:
    metadata = open_checkpoint(gguf).tokenizer_files()
    assert not isinstance(metadata, Path)
    assert list(metadata["tokenizer.ggml.tokens"]) == ["a", "b", "é"]
    folder = write_directory(tmp_path / "hf", hf_config())
    assert open_checkpoint(folder).tokenizer_files() == folder


def test_rotated_rows_of_a_llama_gguf_are_put_in_order(gguf: Path) -> None:
    tensors = open_checkpoint(gguf).tensors
    in_file = np.arange(64, dtype=np.float32).reshape(8, 8)
    # The format's converter writes a head's rows as 0, 2, 1, 3 (halves interleaved).
    halves = in_file.reshape(2, 2, 2, 8).swapaxes(1, 2).reshape(8, 8)
    assert np.array_equal(tensors["layers.0.self_attn.q_proj.weight"].dequantize(), halves)
    assert np.array_equal(tensors["layers.0.self_attn.o_proj.weight"].dequantize(), in_file)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (3, 8), (9, 64)])
def test_row_order_undoes_the_interleaving_of_the_converter(heads: int, head_dim: int) -> None:
    rows = np.arange(heads * head_dim)
    in_file = rows.reshape(heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)
    assert np.array_equal(in_file[rotary_row_order(heads, head_dim)], rows)


def test_only_llama_rows_are_reordered(tmp_path: Path) -> None:
    keys = {key.replace("llama.", "qwen3."): value for key, value in llama_keys().items()}
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf_bytes(keys | {"general.architecture": ("str", "qwen3")}, llama_tensors()))
    assert all(source.row_order is None for source in open_checkpoint(path).tensors.values())


def test_names_of_norms_depend_on_the_family() -> None:
    assert canonical_name("blk.3.ffn_norm.weight", "llama") == "layers.3.post_attention_layernorm.weight"
    assert canonical_name("blk.3.ffn_norm.weight", "gemma3") == "layers.3.pre_feedforward_layernorm.weight"
    assert canonical_name("blk.3.post_attention_norm.weight", "gemma3") == "layers.3.post_attention_layernorm.weight"
    assert canonical_name("blk.3.post_ffw_norm.weight", "gemma3") == "layers.3.post_feedforward_layernorm.weight"


@pytest.mark.parametrize(
    "name", ["blk.x.attn_q.weight", "blk.01.attn_q.weight", "blk.0.ssm_a.weight", "attn_q.weight", "x"]
)
def test_other_names_have_no_canonical_one(name: str) -> None:
    assert canonical_name(name, "llama") is None


def test_missing_left_over_and_mis_shaped_tensors_are_named_with_the_file(tmp_path: Path) -> None:
    tensors = llama_tensors() | {"blk.0.ssm_a.weight": f32((4,)), "output_norm.weight": f32((9,))}
    del tensors["blk.1.ffn_up.weight"]
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes(llama_keys(), tensors))
    with pytest.raises(CheckpointError) as caught:
        check_weights(WEIGHTS, open_checkpoint(path))
    message = str(caught.value)
    assert str(path) in message
    assert "1 tensors are missing: layers.1.mlp.up_proj.weight" in message
    assert "1 tensors are left over: blk.0.ssm_a.weight" in message
    assert "1 tensors are mis-shaped: norm.weight is (9,), must be (8,)" in message


def test_long_lists_of_problems_are_cut(gguf: Path) -> None:
    with pytest.raises(CheckpointError, match=r"20 tensors are left over.* and 10 more"):
        check_weights({}, open_checkpoint(gguf))


def test_rotation_factors_and_old_rotary_buffers_are_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    path.write_bytes(gguf_bytes(llama_keys(), llama_tensors() | {"rope_freqs.weight": f32((2,), 1.0)}))
    check_weights(WEIGHTS, open_checkpoint(path))
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": f32((2,))}
    folder = write_directory(tmp_path / "hf", hf_config(), hf_tensors() | buffers)
    check_weights(WEIGHTS, open_checkpoint(folder))


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.gguf"
    path.write_bytes(gguf_bytes(llama_keys(), llama_tensors() | {"norm.weight": f32((8,))}))
    with pytest.raises(CheckpointError, match=r"twice\.gguf: tensor 'norm\.weight': another tensor is"):
        open_checkpoint(path)


def test_fingerprints_tell_models_apart_and_not_paths(gguf: Path, tmp_path: Path) -> None:
    first = open_checkpoint(gguf).fingerprint
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(gguf.read_bytes())
    assert open_checkpoint(copy).fingerprint == first
    tensors = llama_tensors() | {"blk.1.ffn_up.weight": f32((16, 8), 99.0)}
    copy.unlink()
    copy.write_bytes(gguf_bytes(llama_keys(), tensors))
    assert open_checkpoint(copy).fingerprint != first
    folder = write_directory(tmp_path / "hf", hf_config())
    first = open_checkpoint(folder).fingerprint
    (folder / "config.json").write_text(json.dumps(hf_config(rope_theta=5000.0)))
    assert open_checkpoint(folder).fingerprint != first


def test_a_lone_safetensors_file_is_answered_with_what_to_do(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "hf", hf_config()) / "model.safetensors"
    with pytest.raises(CheckpointError, match="give the directory"):
        open_checkpoint(path)
